package shim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// counted are counts of each way.
func counted() Counts {
	c := newCounter()
	c.typed("session.send")
	c.typed("session.send")
	c.typed("connect")
	c.raw("session.of.tomorrow")
	c.own("runtime.shutdown")
	return c.snapshot()
}

func TestPrintCounts(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	counted().Print(&b)
	const want = "typed\t1\tconnect\ntyped\t2\tsession.send\nraw\t1\tsession.of.tomorrow\nown\t1\truntime.shutdown\n"
	if b.String() != want {
		t.Errorf("printed %q, want %q", b.String(), want)
	}
}

func TestWriteCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for path, file := range map[string]string{
		filepath.Join(dir, "counts.json"): filepath.Join(dir, "counts.json"),
		dir:                               filepath.Join(dir, fmt.Sprintf("%d.json", os.Getpid())),
	} {
		if err := counted().WriteFile(path); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got Counts
		if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, counted()) {
			t.Errorf("%s has %+v (%v), want %+v", file, got, err, counted())
		}
	}
	if err := counted().WriteFile(filepath.Join(dir, "nowhere", "counts.json")); err == nil {
		t.Error("counts were written into a folder that is not there")
	}
}

// A program can make up any number of methods; the number of counted names is bounded.
func TestCountsAreBounded(t *testing.T) {
	t.Parallel()
	c := newCounter()
	for i := range maxNames + 3 {
		c.raw(fmt.Sprintf("method.%d", i))
	}
	raw := c.snapshot().Raw
	if len(raw) != maxNames+1 || raw["other"] != 3 {
		t.Errorf("%d names, %d others; want %d and 3", len(raw), raw["other"], maxNames+1)
	}
}

// Methods without an rpc go by RawService and are counted.
func TestRawIsCounted(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{Replies: map[string]json.RawMessage{"plans.ofTomorrow": json.RawMessage(`{"a":1}`)}})
	p := r.connect(false)
	p.call("connect", `{}`)
	if got := p.call("plans.ofTomorrow", `{}`); got != `{"a":1}` {
		t.Errorf("the answer is %s", got)
	}
	if counts := r.server.Counts(); counts.Raw["plans.ofTomorrow"] != 1 || counts.Typed["plans.ofTomorrow"] != 0 {
		t.Errorf("counted as %+v", counts)
	}
}
