package bridge

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// onDisk is a bridge whose data directory is on a disk in memory.
type onDisk struct {
	*lives
	home, data string
	disk       *faultfs.FS
	directory  *store.Store
}

func openOnDisk(t *testing.T, home, data string, disk *faultfs.FS) *onDisk {
	t.Helper()
	if err := disk.MkdirAll(filepath.Join(data, "sessions")); err != nil {
		t.Fatal(err)
	}
	kept, err := store.Open(store.Config{Dir: data, Journals: journal.WriterConfig{FS: disk}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() }) // after the bridge
	l := newLivesAt(t, home, always(fakecli.Script{}), func(c *Config) { c.Directory = kept })
	return &onDisk{l, home, data, disk, kept}
}

// fullAfter is the next life of the bridge, which is killed now, on a disk that is full.
func (o *onDisk) fullAfter(t *testing.T) *onDisk {
	t.Helper()
	before, next, data := o.disk.Restart(false), &faultfs.FS{}, t.TempDir()
	for _, name := range before.Names() {
		path := data + strings.TrimPrefix(name, o.data)
		if err := next.MkdirAll(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		next.Put(path, slices.Clone(before.Content(name)))
	}
	o.life().Kill()
	next.Room(0)
	return openOnDisk(t, o.home, data, next)
}

// turns are the messages of the session with their positions, by a stream from its beginning.
func (o *onDisk) turns(n int) (texts []string, at []*bridgev1.Position) {
	o.t.Helper()
	s := o.subscribe(&bridgev1.SubscribeRequest{Sessions: one("s1")})
	defer s.stop()
	for len(texts) < n {
		for _, e := range s.next().GetEvents().GetEvents() {
			if m := e.GetEvent().GetUserMessage(); m != nil {
				texts, at = append(texts, m.GetContent()), append(at, e.GetPosition())
			}
		}
	}
	return texts, at
}

// A bridge starts twice on a full disk: readers receive the events of the restored sessions, no position is
// used twice, and the events are written when there is room.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	o := openOnDisk(t, t.TempDir(), t.TempDir(), &faultfs.FS{})
	o.create("s1")
	o.ask("s1", "turn 1")
	_, before := o.turns(1)
	seen := map[string]string{}
	for life := 2; life <= 3; life++ {
		o = o.fullAfter(t)
		if out := o.ask("s1", fmt.Sprint("turn ", life)); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
			t.Fatalf("on a full disk the turn is %v", out)
		}
		texts, at := o.turns(life) // what the disk did not take, the CLI's history has
		for i, p := range at {
			if p.GetEpoch() != before[0].GetEpoch() || texts[i] != fmt.Sprint("turn ", i+1) {
				t.Errorf("life %d: %q is at %v", life, texts[i], p)
			}
			if i == life-1 && seen[fmt.Sprint(p)] != "" {
				t.Errorf("life %d: %q is at %v, as was %q", life, texts[i], p, seen[fmt.Sprint(p)])
			}
			seen[fmt.Sprint(p)] = texts[i]
		}
		if len(o.directory.Degraded()) == 0 {
			t.Error("nobody is told that the disk is full")
		}
	}
	o.disk.Room(-1)
	eventually(t, "the journal to be on disk", func() bool { return len(o.directory.Degraded()) == 0 })
}
