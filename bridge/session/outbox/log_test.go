package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// A crash in the middle of a write leaves what was written before, whole; the next life goes on from there.
func TestCrashAtEachByte(t *testing.T) {
	t.Parallel()
	disk := onDisk()
	b := opened(t, disk)
	first := put(t, b, "one")
	sizes := []int{len(disk.files[logFile])}
	accepted(t, b, first, []string{"m1"})
	sizes = append(sizes, len(disk.files[logFile]))
	put(t, b, "two")
	sizes = append(sizes, len(disk.files[logFile]))
	whole := disk.files[logFile]
	for cut := range len(whole) + 1 {
		torn := onDisk()
		torn.files[logFile] = slices.Clone(whole[:cut])
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

// An append that fails may leave anything behind: the next one writes the log anew.
func TestAppendThatFails(t *testing.T) {
	t.Parallel()
	disk := onDisk()
	b := opened(t, disk)
	first := put(t, b, "one")
	disk.set(errors.New("full"), nil)
	accepted(t, b, first, []string{"m1"})
	disk.set(nil, nil)
	disk.files[logFile] = append(disk.files[logFile], strings.Repeat("x", 1000)+"\n"...)
	second := put(t, b, "two")
	entries := opened(t, disk).Entries()
	if len(entries) != 2 || !entries[0].Acknowledged() || entries[1].N != second || entries[1].Acknowledged() {
		t.Errorf("the next life has %+v", entries)
	}
}

// The log has a bound although it grows with each prompt, and large prompts are not in it.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a write of the real clock may take too long on a busy machine
		disk := onDisk()
		b := opened(t, disk)
		large := put(t, b, strings.Repeat("l", MaxInLog+1))
		kept := put(t, b, "kept")
		accepted(t, b, kept, []string{"m"})
		for i := range 2000 {
			n := put(t, b, strings.Repeat("x", 100))
			accepted(t, b, n, []string{fmt.Sprint("m", i)})
			b.Drop(n)
			if size := len(disk.files[logFile]); size > 2*maxSpent {
				t.Fatalf("the log has %d bytes after %d prompts", size, i)
			}
		}
		b = opened(t, disk)
		if entries := b.Entries(); len(entries) != 2 || !entries[1].Acknowledged() || string(entries[1].Prompt().Params) != `{"prompt":"kept"}` {
			t.Errorf("the next life has %d prompts", len(entries))
		}
		if names, _ := disk.List(); !slices.Equal(names, []string{promptFile(large), logFile}) {
			t.Errorf("on disk are %q", names)
		}
		b.Drop(large)
		if names, _ := disk.List(); !slices.Equal(names, []string{logFile}) {
			t.Errorf("on disk are %q in the end", names)
		}
	})
}

// Every change of the disk is an append of one line while prompts come and go.
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
		b.Drop(n)
	}
	if want := map[string]int{"append": 30}; !maps.Equal(disk.calls, want) {
		t.Errorf("the disk was changed %v times, want %v", disk.calls, want)
	}
}

// counting counts the changes of a disk.
type counting struct {
	*memory
	calls map[string]int
}

func (c *counting) Append(name string, size int64, data []byte) error {
	c.calls["append"]++
	return c.memory.Append(name, size, data)
}

func (c *counting) Write(name string, data []byte) error {
	c.calls["write"]++
	return c.memory.Write(name, data)
}

func (c *counting) Remove(name string) error {
	c.calls["remove"]++
	return c.memory.Remove(name)
}
