package journal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// feed appends events as the goroutine does that reads a CLI, faster than any disk.
func feed(l *life, name string, events, size int) {
	for i := range events {
		l.j.Append(&Record{Type: "d", ID: ParseID(fmt.Append(nil, name, i)), JSON: make([]byte, size)})
		if i%4 == 3 { // what comes in one piece
			l.j.AwaitDisk(nil, nil)
		}
	}
}

// memory watches how much a journal has in memory while f runs.
func (l *life) memory(f func()) (highest int) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		f()
	}()
	for {
		l.j.mu.RLock()
		highest = max(highest, l.j.cached)
		l.j.mu.RUnlock()
		select {
		case <-over:
			return highest
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// losses are the ranges of events that the journal has given up.
func (l *life) losses() []loss {
	l.j.mu.RLock()
	defer l.j.mu.RUnlock()
	return slices.Clone(l.j.disk.losses)
}

// A disk that is slower than what comes, however slow it is: everything is written and
// delivered, in bounded memory, and nothing is wrong with the journal.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ pace, size int }{
		{40 << 10, 20 << 10}, {1 << 20, 4 << 10}, {1 << 20, 20 << 10}, {1 << 20, 3 << 20}, {20 << 20, 20 << 10},
	} {
		t.Run(fmt.Sprintf("%d bytes at %d a second", c.size, c.pace), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { slowDisk(t, c.pace, c.size) })
		})
	}
}

func slowDisk(t *testing.T, pace, size int) {
	interval := DefaultFsyncInterval
	if pace < 1<<20 { // so that the test need not copy all of the disk thousands of times
		interval = 30 * time.Second
	}
	l := begin(t, disk(t), WriterConfig{SegmentBytes: 4 << 20, Interval: interval})
	l.fs.Throttle(pace)
	events := 16 << 20 / size
	highest := l.memory(func() { feed(l, "slow", events, size) })
	if most := maxHeldBytes + 2*maxCachedBytes + 4*size; highest > most {
		t.Errorf("%d KiB are in memory, and %d may be", highest>>10, most>>10)
	}
	if err := l.j.Degraded(); err != nil && !errors.Is(err, ErrStalled) {
		t.Errorf("the journal is %v", err)
	}
	if err := l.j.AwaitShown(t.Context()); err != nil { // for as long as it takes
		t.Error(err)
	}
	if got := read(t, reader(t, l.j, Position{}, false, nothing)); !slices.Equal(got, words(1, events, "d")) {
		t.Errorf("of %d events %d are delivered", events, len(got))
	}
	if l.w.held.Load() != int64(l.j.disk.held) {
		t.Errorf("%d bytes wait by the writer's account, %d by the journal's", l.w.held.Load(), l.j.disk.held)
	}
	l.fs.Throttle(0)
	l.close()
	if held := l.w.held.Load(); held != 0 {
		t.Errorf("closed, %d bytes wait", held)
	}
}

// A disk that stops moving holds the reader up for a bounded time, and once, not with each
// event; when it moves again the reader waits for it again.
func TestDiskStopsMoving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, disk(t), WriterConfig{})
		l.j.Append(durable(0))
		l.awaitShown()
		release := l.fs.Stall()
		begun := time.Now()
		feed(l, "stalled", 4000, 20<<10)
		if took := time.Since(begun); took < DefaultPatience || took > DefaultPatience+5*time.Second {
			t.Errorf("the reader was held up for %v", took)
		}
		if err := l.j.Degraded(); !errors.Is(err, ErrBacklog) {
			t.Errorf("the journal is %v", err)
		}
		release()
		synctest.Wait()
		l.fs.Throttle(1 << 20)
		given := l.losses()
		begun = time.Now()
		feed(l, "again", 1000, 20<<10)
		if took := time.Since(begun); took < 8*time.Second || !slices.Equal(l.losses(), given) {
			t.Errorf("on the slow disk 1000 events took %v, and given up are %v, before %v", took, l.losses(), given)
		}
		l.fs.Throttle(0)
		l.close()
	})
}

// A caller that waits for the disk continues at once when its connection ends, its CLI has exited, or its
// journal is closed.
func TestWaitForTheDiskEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(l *life, done, exited chan struct{}){
		"the connection": func(_ *life, done, _ chan struct{}) { close(done) },
		"the CLI":        func(_ *life, _, exited chan struct{}) { close(exited) },
		"the journal":    func(l *life, _, _ chan struct{}) { _ = l.j.Close(l.t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := begin(t, disk(t), WriterConfig{})
				l.t = t
				l.fs.Throttle(64 << 10)
				for i := range 12 {
					l.j.Append(&Record{Type: "d", ID: ParseID(fmt.Append(nil, i)), JSON: make([]byte, 1<<20)})
				}
				done, exited := make(chan struct{}), make(chan struct{})
				begun := time.Now()
				var wait sync.WaitGroup
				wait.Go(func() {
					if !l.j.AwaitDisk(done, exited) || time.Since(begun) != time.Second {
						t.Errorf("the wait ended after %v", time.Since(begun))
					}
				})
				time.Sleep(time.Second)
				synctest.Wait()
				if name != "the journal" {
					end(l, done, exited)
					wait.Wait()
				} else {
					wait.Go(func() { end(l, done, exited) })
					synctest.Wait()
				}
				l.fs.Throttle(0)
				wait.Wait()
				if name != "the journal" {
					l.close()
				} else {
					l.w.Close()
				}
			})
		})
	}
}

// Many journals share a slow disk: each gets its part, those with little to write do not wait
// behind those with much, and all of them together are bounded.
func TestSlowDiskIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs := disk(t)
		l := begin(t, fs, WriterConfig{})
		fs.Throttle(8 << 20)
		all := []*life{l}
		for i := range 20 {
			d, _, err := OpenDisk(fmt.Sprint("s/", i), epoch, l.w)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, &life{t: t, fs: fs, w: l.w, j: New(Config{Epoch: epoch, Log: d})})
		}
		var feeding sync.WaitGroup
		for i, one := range all[1:] {
			feeding.Go(func() { feed(one, fmt.Sprint(i), 250, 20<<10) })
		}
		time.Sleep(5 * time.Second) // all are at their bound
		if held := l.w.held.Load(); held > maxAllHeldBytes+20*(shareBytes+1<<20) {
			t.Errorf("%d MiB wait for the disk", held>>20)
		}
		begun := time.Now()
		l.j.Append(durable(1))
		l.awaitShown()
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("a small event took %v", took)
		}
		fs.Throttle(0)
		feeding.Wait()
		for _, one := range all[1:] {
			one.awaitShown()
			if got := read(t, reader(t, one.j, Position{}, false, nothing)); len(got) != 250 {
				t.Errorf("%d of 250 events are delivered", len(got))
			}
			if err := one.j.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		l.close()
	})
}
