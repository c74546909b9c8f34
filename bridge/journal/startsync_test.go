package journal

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// tellingFS tells what is synced, and what begins to be.
type tellingFS struct {
	*faultfs.FS
	mu   sync.Mutex
	told []string
}

type tellingFile struct {
	segment.File
	fs *tellingFS
}

func (f *tellingFS) Open(name string, write bool) (segment.File, error) {
	file, err := f.FS.Open(name, write)
	if err != nil || !strings.HasPrefix(name, "s/") {
		return file, err
	}
	return tellingFile{file, f}, nil
}

func (f *tellingFS) tell(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, what)
}

// take returns what was told since the last call.
func (f *tellingFS) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	told := f.told
	f.told = nil
	return told
}

func (f tellingFile) Sync() error {
	f.fs.tell("sync")
	return f.File.Sync()
}

func (f tellingFile) StartSync() { f.fs.tell("start") }

// The disk begins to write all journals before the first one is synced. One alone is just synced.
func TestSyncsBeginTogether(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][]string{1: {"sync"}, 3: {"start", "start", "start", "sync", "sync", "sync"}} {
		synctest.Test(t, func(t *testing.T) {
			fs := &tellingFS{FS: &faultfs.FS{}}
			w := NewWriter(WriterConfig{FS: fs, OverrunFile: "overruns"})
			var all []*Journal
			for i := range n {
				d, _, err := OpenDisk(fmt.Sprintf("s/%d", i), epoch, w)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, New(Config{Epoch: epoch, Log: d}))
			}
			time.Sleep(time.Second + time.Millisecond) // not at a tick of the syncs, which may come between two appends
			fs.take()                                  // of the reservations
			for i, j := range all {
				j.Append(durable(i))
			}
			time.Sleep(time.Second)
			if told := fs.take(); !slices.Equal(told, want) {
				t.Errorf("%d journals: %q, want %q", n, told, want)
			}
			for _, j := range all {
				if err := j.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			w.Close()
		})
	}
}
