package journal

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// The disk of a restored session hangs from its first reservation: readers receive the events within a time
// limit, ephemeral events as well, and no number is used twice, whether the disk recovers before or after the
// next restart.
func TestDiskHangsInTheNextLife(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ durable, released bool }{
		"a durable event": {true, true}, "ephemeral ones": {false, true}, "and for good": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { hangingLife(t, c.durable, c.released) })
		})
	}
}

func hangingLife(t *testing.T, withDurable, released bool) {
	l := begin(t, &faultfs.FS{}, WriterConfig{})
	l.j.Append(durable(0))
	l.awaitShown()
	fs := l.kill(false)
	release := fs.StallIn("s/")
	l = begin(t, fs, WriterConfig{})
	before := l.j.Last()
	synctest.Wait() // the reservation hangs
	l.j.Append(ephemeral(1))
	want := 1
	if withDurable {
		l.j.Append(durable(2))
		want = 2
	}
	if got := shown(t, l.j, before); len(got) > 0 {
		t.Fatalf("before anything is known of them, %q are shown", got)
	}
	time.Sleep(2 * stallTimeout)
	synctest.Wait()
	if got := shown(t, l.j, before); len(got) != want || !errors.Is(l.j.Degraded(), ErrStalled) {
		t.Fatalf("shown are %q; the journal is %v", got, l.j.Degraded())
	}
	seen := l.j.Last()
	if released {
		release()
		time.Sleep(stallTimeout)
		synctest.Wait()
		if err := l.j.Degraded(); err != nil {
			t.Errorf("the disk is back, and the journal %v", err)
		}
	}
	next := l.fs.Restart(false)
	release() // for the life that is over
	l.w.Close()
	l = begin(t, next, WriterConfig{})
	l.j.Append(durable(3))
	l.awaitShown()
	if first := l.j.Last(); first.Epoch != seen.Epoch || first.Seq <= seen.Seq {
		t.Errorf("the next life gives %v, after %v", first, seen)
	}
	l.close()
}

// Where the whole disk hangs, the count of overruns too, nothing new is shown that the next
// life might give again: the session says so, and goes on when the disk is back.
func TestWholeDiskHangsInTheNextLife(t *testing.T) { bothWays(t, testWholeDiskHangsInTheNextLife) }

func testWholeDiskHangsInTheNextLife(t *testing.T, cfg WriterConfig) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, &faultfs.FS{}, cfg)
		l.j.Append(durable(0))
		l.awaitShown()
		fs := l.kill(false)
		release := fs.Stall()
		l = begin(t, fs, cfg)
		before := l.j.Last()
		l.j.Append(ephemeral(1))
		time.Sleep(time.Minute)
		if got := shown(t, l.j, before); len(got) > 0 || !errors.Is(l.j.Degraded(), ErrStalled) {
			t.Fatalf("shown are %q; the journal is %v", got, l.j.Degraded())
		}
		l.j.Append(durable(2)) // Append never waits
		release()
		time.Sleep(stallTimeout)
		synctest.Wait()
		if got := shown(t, l.j, before); len(got) != 2 || l.j.Degraded() != nil {
			t.Errorf("the disk is back: shown are %q; the journal is %v", got, l.j.Degraded())
		}
		l.close()
	})
}

// An append to a removed journal does not touch its directory: another session of the same name may own it.
func TestRemovedOnce(t *testing.T) { bothWays(t, testRemovedOnce) }

func testRemovedOnce(t *testing.T, cfg WriterConfig) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, &faultfs.FS{}, cfg)
		l.j.Append(durable(0))
		l.awaitShown()
		if err := l.j.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.fs.Put("s/one/session", []byte("another's"))
		l.j.Append(durable(1))
		synctest.Wait()
		if got := l.fs.Content("s/one/session"); string(got) != "another's" {
			t.Errorf("the other session's state is %q", got)
		}
		l.w.Close()
	})
}
