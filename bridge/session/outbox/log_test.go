package outbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// Earlier versions appended each change to a file: a crash in the middle of a write left what was written before, whole. The
// next life goes on from there.
func TestLogOfEarlierVersions(t *testing.T) {
	t.Parallel()
	lines := []string{
		`{"n":1,"prompt":{"params":{"prompt":"one"}}}` + "\n",
		`{"state":{"next":1,"entries":[{"n":1,"ids":["m1"],"before":{},"givenAt":"2026-11-01T00:00:00Z","deliveries":1}]}}` + "\n",
		`{"n":2,"prompt":{"params":{"prompt":"two"}}}` + "\n",
	}
	whole, sizes := strings.Join(lines, ""), []int{}
	for i := range lines {
		sizes = append(sizes, len(strings.Join(lines[:i+1], "")))
	}
	for cut := range len(whole) + 1 {
		torn := onDisk()
		torn.files[logFile] = []byte(whole[:cut])
		b := opened(t, torn)
		entries := b.Entries()
		if want := len(slices.DeleteFunc([]int{sizes[0], sizes[2]}, func(n int) bool { return n > cut })); len(entries) != want {
			t.Fatalf("after %d bytes there are %d prompts, want %d", cut, len(entries), want)
		}
		if len(entries) > 0 && entries[0].Acknowledged() != (cut >= sizes[1]) {
			t.Fatalf("after %d bytes the first is acknowledged: %v", cut, entries[0].Acknowledged())
		}
		n := put(t, b, "three")
		accepted(t, b, n, []string{"m3"})
		next := opened(t, torn).Entries()
		if len(next) != len(entries)+1 || !next[len(next)-1].Acknowledged() {
			t.Fatalf("after %d bytes and another prompt there are %+v", cut, next)
		}
	}
}

// What is saved at once has a bound: prompts beyond it have files, whether they are large or many.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a write of the real clock may take too long on a busy machine
		disk := onDisk()
		b := opened(t, disk)
		large := put(t, b, strings.Repeat("l", MaxInLog+1))
		if !b.Fits(MaxInLog/2) || b.Fits(MaxInLog/2+1) {
			t.Error("a prompt that would be saved with the state does not fit, or one that may not be fits")
		}
		var all []uint64
		for i := range MaxEntries - 1 {
			n := put(t, b, strings.Repeat("x", 1000))
			accepted(t, b, n, []string{fmt.Sprint("m", i)})
			if size := len(disk.files[logFile]); size > 2*MaxInLog {
				t.Fatalf("%d bytes are saved at once after %d prompts", size, i)
			}
			all = append(all, n)
		}
		if b.Fits(1000) {
			t.Error("a further prompt would be saved with the others")
		}
		if files := len(disk.files) - 1; files < MaxEntries/2 || disk.files[promptFile(large)] == nil {
			t.Errorf("%d of %d prompts have files", files, MaxEntries)
		}
		if b = opened(t, disk); b.Fits(1000) {
			t.Error("the next life saves a further prompt with the others")
		}
		if entries := b.Entries(); len(entries) != MaxEntries || !entries[1].Acknowledged() || entries[MaxEntries-1].Obstacle() != "" {
			t.Errorf("the next life has %d prompts", len(entries))
		}
		for _, n := range append(all, large) {
			finish(t, b, n)
		}
		if names, _ := disk.List(); !slices.Equal(names, []string{logFile}) || len(disk.files[logFile]) > 100 {
			t.Errorf("on disk are %q in the end", disk.files)
		}
	})
}

// Each change saves the state once while prompts come and go.
func TestWritesOfAPrompt(t *testing.T) {
	t.Parallel()
	disk := &counting{memory: onDisk(), calls: map[string]int{}}
	b, err := Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		n, _, _ := b.Add(Prompt{Params: json.RawMessage(`{"prompt":"p"}`)}, keepAll, journal.Position{})
		accepted(t, b, n, []string{"m"})
		finish(t, b, n)
	}
	if want := map[string]int{"save": 30}; !maps.Equal(disk.calls, want) {
		t.Errorf("the disk was changed %v times, want %v", disk.calls, want)
	}
}

// counting counts the changes of a disk.
type counting struct {
	*memory
	calls map[string]int
}

func (c *counting) Save(state []byte) error {
	c.calls["save"]++
	return c.memory.Save(state)
}

func (c *counting) Write(name string, data []byte) error {
	c.calls["write"]++
	return c.memory.Write(name, data)
}

func (c *counting) Remove(name string) error {
	c.calls["remove"]++
	return c.memory.Remove(name)
}
