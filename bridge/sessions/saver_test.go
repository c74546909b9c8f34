package sessions

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// A rare signal is handled at once. Frequent signals are handled once in each interval, and none is left out.
func TestPaced(t *testing.T) {
	t.Parallel()
	const every = 20 * time.Millisecond
	for name, test := range map[string]struct {
		signals []time.Duration // when
		takes   time.Duration   // a call
		want    []time.Duration
	}{
		"once":               {signals: []time.Duration{5}, want: []time.Duration{5}},
		"twice, far apart":   {signals: []time.Duration{0, every + 1}, want: []time.Duration{0, every + 1}},
		"many together":      {signals: []time.Duration{0, 1, 2, 3}, want: []time.Duration{0, every}},
		"many, on and on":    {signals: []time.Duration{0, 1, every + 1, 2*every + 1}, want: []time.Duration{0, every, 2 * every, 3 * every}},
		"a slow disk":        {signals: []time.Duration{0, 1}, takes: 3 * every, want: []time.Duration{0, 3 * every}},
		"not at all":         {},
		"again after a rest": {signals: []time.Duration{0, 1, 9 * every}, want: []time.Duration{0, every, 9 * every}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				signal, over := make(chan struct{}, 1), make(chan struct{})
				begin := time.Now()
				var got []time.Duration
				go func() {
					defer close(over)
					paced(ctx, signal, every, func() {
						got = append(got, time.Since(begin))
						time.Sleep(test.takes)
					})
				}()
				for _, at := range test.signals {
					time.Sleep(at - time.Since(begin))
					select {
					case signal <- struct{}{}:
					default:
					}
					synctest.Wait()
				}
				time.Sleep(time.Second)
				cancel()
				<-over
				if !slices.Equal(got, test.want) {
					t.Errorf("called at %v, want %v", got, test.want)
				}
			})
		})
	}
}

// One call saves sessions at a time, each once for all its marks, and what is marked during a save
// is saved after it.
func TestSaver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := &Entry{}, &Entry{}
		saved := map[*Entry]int{}
		busy := false
		v := newSaver(func(entries []*Entry, _ bool) error {
			if busy {
				t.Error("two calls at once")
			}
			busy = true
			time.Sleep(time.Second)
			busy = false
			for _, e := range entries {
				saved[e]++
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			v.Run(ctx)
		}()
		v.MarkDirty(a)
		v.MarkDirty(a)
		v.MarkDirty(b)
		time.Sleep(500 * time.Millisecond)
		v.MarkDirty(a)
		time.Sleep(time.Minute)
		_ = v.Save(b)
		cancel()
		<-over
		if saved[a] != 2 || saved[b] != 2 {
			t.Errorf("saved %d and %d times, want each twice", saved[a], saved[b])
		}
		v.MarkDirty(b)
		v.SaveDirty()
		if saved[b] != 3 {
			t.Error("a session that is marked after Run is not saved")
		}
	})
}

// What could not be saved is saved again, also if nothing changes any more, unless another server has the session. While the
// storage takes nothing, the tries become rare.
func TestSaverTriesAgain(t *testing.T) {
	t.Parallel()
	broken := errors.New("no route to the storage")
	mark := func(v *saver) { v.MarkDirty(&Entry{}) }
	for name, tc := range map[string]struct {
		failure  error
		fails    int // how often, at first
		save     func(v *saver)
		min, max int // tries within an hour
	}{
		"it works again": {broken, 2, mark, 3, 3},
		"a caller saves": {broken, 1, func(v *saver) {
			if v.Save(&Entry{}) == nil {
				t.Error("a failure is not told")
			}
		}, 2, 2},
		"another server has it": {backend.ErrStale, 1, mark, 1, 1},
		"another server has one of two": {errors.Join(fmt.Errorf("a: %w", backend.ErrStale), fmt.Errorf("b: %w", broken)), 1, func(v *saver) {
			v.Exclusively(func() { // so that both are saved at once
				mark(v)
				mark(v)
			})
		}, 2, 2},
		"it takes nothing": {broken, math.MaxInt, mark, 100, 130},
	} {
		synctest.Test(t, func(t *testing.T) {
			var tries atomic.Int64
			v := newSaver(func([]*Entry, bool) error {
				if tries.Add(1) <= int64(tc.fails) {
					return tc.failure
				}
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() {
				defer close(over)
				v.Run(ctx)
			}()
			tc.save(v)
			time.Sleep(time.Hour)
			cancel()
			<-over
			if n := int(tries.Load()); n < tc.min || n > tc.max {
				t.Errorf("%s: there are %d tries, want %d to %d", name, n, tc.min, tc.max)
			}
		})
	}
}

// SaveDirty returns after a round that Run has begun: what was marked before is saved.
func TestSaveDirtyWaitsForARound(t *testing.T) {
	t.Parallel()
	started, proceed := make(chan struct{}), make(chan struct{})
	saved := make(chan *Entry, 1)
	v := newSaver(func(entries []*Entry, _ bool) error {
		close(started)
		<-proceed
		saved <- entries[0]
		return nil
	})
	e := &Entry{}
	v.MarkDirty(e)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		v.Run(ctx)
	}()
	<-started
	go close(proceed)
	v.SaveDirty()
	if len(saved) != 1 {
		t.Error("SaveDirty returns while the session is being saved")
	}
	cancel()
	<-over
}

// The sessions of a round are saved together, up to a bound.
func TestSaverTogether(t *testing.T) {
	t.Parallel()
	var sizes []int
	v := newSaver(func(entries []*Entry, _ bool) error { sizes = append(sizes, len(entries)); return nil })
	for range 2*saveTogether + 1 {
		v.MarkDirty(&Entry{})
	}
	v.SaveDirty()
	if !slices.Equal(sizes, []int{saveTogether, saveTogether, 1}) {
		t.Errorf("saved by %v", sizes)
	}
}

// Only what Run saves may be synced later: calls wait for the other saves.
func TestSaverSaysWhoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var later []bool
		v := newSaver(func(_ []*Entry, l bool) error { later = append(later, l); return nil })
		a := &Entry{}
		_ = v.Save(a)
		v.MarkDirty(a)
		v.SaveDirty()
		ctx, cancel := context.WithCancel(t.Context())
		go v.Run(ctx)
		v.MarkDirty(a)
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
		if !slices.Equal(later, []bool{false, false, true}) {
			t.Errorf("the saves may be later: %v", later)
		}
	})
}
