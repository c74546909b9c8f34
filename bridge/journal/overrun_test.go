package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// shown returns the events for a reader after a position, without gaps.
func shown(t *testing.T, j *Journal, after Position) []string {
	t.Helper()
	return slices.DeleteFunc(read(t, reader(t, j, after, true, nothing)),
		func(w string) bool { return strings.HasPrefix(w, "gap") })
}

// A restored session finds its disk full from the first event on: readers receive the events, no number is used
// twice after any number of restarts, and the events of the last process are written when there is room.
func TestFullDiskInTheNextLife(t *testing.T) {
	t.Parallel()
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean %v", clean), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { fullLives(t, clean) })
		})
	}
}

func fullLives(t *testing.T, clean bool) {
	l := begin(t, &faultfs.FS{}, WriterConfig{})
	l.j.Append(durable(0))
	l.awaitShown()
	time.Sleep(2 * DefaultFsyncInterval) // a later crash of the machine does not take the event back
	fs := l.fs
	if clean {
		l.close()
	} else {
		fs = l.kill(false)
	}
	seen := uint64(1)
	for life := range 4 {
		fs.Room(0)
		l = begin(t, fs, WriterConfig{})
		before := l.j.Last()
		l.j.Append(durable(10 * (life + 1)))
		l.j.Append(ephemeral(life))
		l.awaitShown()
		if got := shown(t, l.j, before); len(got) != 2 {
			t.Fatalf("life %d: on a full disk %q are shown", life, got)
		}
		if first := l.j.Last().Seq - 1; first <= seen || l.j.Last().Epoch != epoch {
			t.Fatalf("life %d: number %d was given, after %d", life, first, seen)
		}
		seen = l.j.Last().Seq
		if !errors.Is(l.j.Degraded(), syscall.ENOSPC) {
			t.Errorf("the journal is %v", l.j.Degraded())
		}
		if life < 3 {
			fs = l.kill(life == 1)
			fs.Room(-1)
		}
	}
	l.fs.Room(-1)
	time.Sleep(2 * maxRetry)
	synctest.Wait()
	if err := l.j.Degraded(); err != nil {
		t.Fatalf("with room again the journal is %v", err)
	}
	l.close()
	l = begin(t, l.fs, WriterConfig{})
	if l.j.Last().Seq != seen || !l.rec.Clean {
		t.Errorf("after an orderly end the journal is at %v, not %d; %+v", l.j.Last(), seen, l.rec)
	}
	if got := shown(t, l.j, Position{}); !slices.Equal(got, []string{"d1", fmt.Sprint("d", seen-1)}) {
		t.Errorf("%q are on disk", got)
	}
	l.close()
}

// A life that got no further than a part of its first file has given numbers all the same.
func TestFullDiskFromTheFirstFileOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs := &faultfs.FS{}
		w := NewWriter(WriterConfig{FS: fs, OverrunFile: "overruns"})
		w.Close()
		fs.Room(0)
		for room := range int64(120) { // the header's bytes, and some of the mark's
			seen := Position{}
			next := fs.Restart(false)
			for life := range 3 {
				next.Room(0)
				if life == 0 {
					next.Room(room)
				}
				l := &opening{t: t, fs: next, epoch: epoch + uint64(life)}
				l.begin()
				if l.j == nil { // what is damaged is not begun anew on a full disk
					break
				}
				l.j.Append(ephemeral(1))
				time.Sleep(time.Second)
				if got := l.j.Last(); got.Epoch == seen.Epoch && got.Seq <= seen.Seq ||
					len(shown(t, l.j, Position{})) != 1 {
					t.Fatalf("room for %d, life %d: at %v, after %v", room, life, got, seen)
				}
				seen = l.j.Last()
				next = l.end()
			}
		}
	})
}

// opening is a life whose journal may not be opened.
type opening struct {
	t     *testing.T
	fs    *faultfs.FS
	epoch uint64 // of a journal of which nothing is there
	w     *Writer
	j     *Journal
}

func (l *opening) begin() {
	l.w = NewWriter(WriterConfig{FS: l.fs, OverrunFile: "overruns"})
	d, _, err := OpenDisk("s/one", l.epoch, l.w)
	if err != nil {
		l.w.Close()
		if !errors.Is(err, syscall.ENOSPC) {
			l.t.Fatal(err)
		}
		return
	}
	l.j = New(Config{Epoch: epoch, Log: d})
}

func (l *opening) end() *faultfs.FS {
	next := l.fs.Restart(false)
	l.w.Close()
	return next
}

// Without the count nothing new is shown that the next life could show again.
func TestFullDiskWithoutTheCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, &faultfs.FS{}, WriterConfig{})
		l.j.Append(durable(0))
		l.awaitShown()
		l.close()
		if err := l.fs.RemoveAll("overruns"); err != nil {
			t.Fatal(err)
		}
		l.fs.Room(0)
		l = begin(t, l.fs, WriterConfig{})
		l.j.Append(durable(1))
		time.Sleep(time.Second)
		if got := l.j.Last(); got.Seq != 1 {
			t.Errorf("the journal shows %v", got)
		}
		l.fs.Room(-1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.j.AwaitShown(ctx); err != nil || l.j.Last().Seq != 2 {
			t.Errorf("with room it shows %v, %v", l.j.Last(), err)
		}
		l.close()
	})
}
