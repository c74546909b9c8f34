package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// named returns the entry of a session that is being created.
func named(key string) *Entry {
	return &Entry{Session: session.New(session.Config{ID: key, Host: struct{ session.Host }{}})} // the host is not called
}

// disconnected returns the entry of a session that is disconnected.
func disconnected(t *testing.T, key string) *Entry {
	t.Helper()
	e := named(key)
	if err := e.Session.Restore([]byte(`{"config":{},"disconnected":true}`), nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestGetOrCreate(t *testing.T) {
	t.Parallel()
	r := newRegistry()
	first := disconnected(t, "a")
	create := func(e *Entry) func() (*Entry, error) { return func() (*Entry, error) { return e, nil } }
	remove := func(e *Entry) {
		finish, ok := r.BeginRemove(e)
		if !ok {
			t.Fatal("a deleted session cannot be removed")
		}
		finish(true)
	}
	if s, fresh, _ := r.GetOrCreate(t.Context(), "a", nil, create(first)); s != first || !fresh || r.Get("a") != first || !r.Holds(first) {
		t.Errorf("the first is %v, %v", s, fresh)
	}
	if s, fresh, _ := r.GetOrCreate(t.Context(), "a", nil, nil); s != first || fresh {
		t.Errorf("the same is %v, %v", s, fresh)
	}
	first.Session.Loader().Evict() // now it is deleted in memory
	second := named("a")
	if s, fresh, _ := r.GetOrCreate(t.Context(), "a", remove, create(second)); s != second || !fresh || r.Holds(first) {
		t.Errorf("in the place of a deleted one is %v, %v", s, fresh)
	}
	other := named("b")
	r.Put(other)
	if all := r.All(); len(all) != 2 || !slices.Contains(all, second) || !slices.Contains(all, other) || r.Get("c") != nil {
		t.Errorf("all are %v", all)
	}
}

// While a session is being removed, its key waits; a removal that is taken back leaves it.
func TestRemoving(t *testing.T) {
	t.Parallel()
	for _, remove := range []bool{true, false} {
		t.Run(fmt.Sprint(remove), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry()
				old, next := named("a"), named("a")
				r.Put(old)
				finish, ok := r.BeginRemove(old)
				if _, twice := r.BeginRemove(old); !ok || twice {
					t.Fatalf("removing: %v, a second time: %v", ok, twice)
				}
				if _, ok := r.BeginRemove(next); ok {
					t.Error("a session that is not there can be removed")
				}
				if r.Get("a") != old {
					t.Error("it is gone before its removal is over")
				}
				got := make(chan *Entry, 1)
				go func() {
					s, _, _ := r.GetOrCreate(t.Context(), "a", nil, func() (*Entry, error) { return next, nil })
					got <- s
				}()
				synctest.Wait()
				if len(got) != 0 {
					t.Fatal("the key is given away during the removal")
				}
				finish(remove)
				want := old
				if remove {
					want = next
				}
				if s := <-got; s != want {
					t.Errorf("the session is %p, want %p", s, want)
				}
			})
		})
	}
}

func TestDisconnectedAreBounded(t *testing.T) {
	t.Parallel()
	r := newRegistry()
	all := make([]*Entry, MaxDisconnected+3)
	for i := range all {
		all[i] = disconnected(t, fmt.Sprint(i))
		r.Put(all[i])
	}
	for _, e := range all[:MaxDisconnected] {
		if evict := r.TrackDisconnected(e); evict != nil {
			t.Fatalf("%v is evicted", evict)
		}
	}
	r.TrackDisconnected(all[0])     // again: now the youngest
	all[1].Session.Loader().Evict() // gone: not counted any more
	if evict := r.TrackDisconnected(all[MaxDisconnected]); evict != nil {
		t.Errorf("%v is evicted", evict)
	}
	if evict := r.TrackDisconnected(all[MaxDisconnected+1]); !slices.Equal(evict, all[2:3]) {
		t.Errorf("%v is evicted, want the oldest", evict)
	}
}

// One of many that want a key at once makes the session.
func TestOneCreates(t *testing.T) {
	t.Parallel()
	r := newRegistry()
	var wg sync.WaitGroup
	got := make(chan *Entry, 50)
	made := 0 // guarded by the reservation of the key
	for range cap(got) {
		wg.Go(func() {
			s, _, _ := r.GetOrCreate(t.Context(), "a", nil, func() (*Entry, error) {
				made++
				return named("a"), nil
			})
			got <- s
		})
	}
	wg.Wait()
	first := <-got
	for range cap(got) - 1 {
		if s := <-got; s != first {
			t.Errorf("%p is another than %p", s, first)
		}
	}
	if made != 1 {
		t.Errorf("%d were made", made)
	}
}

// While a session is created, the other sessions can be used, and calls for its key wait for as long as
// their contexts last. A creation that fails or panics leaves the key free.
func TestCreatingBlocksOnlyItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		failed, release := errors.New("no storage"), make(chan struct{})
		result := make(chan error, 1)
		go func() {
			_, _, err := r.GetOrCreate(t.Context(), "a", nil, func() (*Entry, error) {
				<-release
				return named("a"), failed
			})
			result <- err
		}()
		synctest.Wait()
		other := named("b")
		r.Put(other)
		if r.Get("b") != other || r.Get("a") != nil || len(r.All()) != 1 {
			t.Error("the table differs from what was put")
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := r.GetOrCreate(short, "a", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for the key: %v", err)
		}
		close(release)
		if err := <-result; !errors.Is(err, failed) {
			t.Errorf("a failed creation returns %v", err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was lost")
				}
			}()
			_, _, _ = r.GetOrCreate(t.Context(), "a", nil, func() (*Entry, error) { panic("create") })
		}()
		s := named("a")
		got, made, err := r.GetOrCreate(t.Context(), "a", nil, func() (*Entry, error) { return s, nil })
		if got != s || !made || err != nil || r.Get("a") != s {
			t.Errorf("after failures: %v, %v, %v", got, made, err)
		}
	})
}

func TestEpochs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := uint64(time.Now().UnixMilli())
		failed := errors.New("the disk is full")
		var reserved uint64
		var fail error
		next := func(e *epochs, want uint64, wantErr error) {
			t.Helper()
			if got, err := e.Next(); got != want || !errors.Is(err, wantErr) {
				t.Errorf("%d, %v, want %d, %v", got, err, want, wantErr)
			}
		}
		memory := &epochs{}
		next(memory, now, nil)
		next(memory, now+1, nil) // within a millisecond
		e := &epochs{Reserve: func() (uint64, error) { return reserved, fail }}
		reserved = 7 // a directory's epochs need not be times
		next(e, 7, nil)
		reserved = now + 100
		next(e, now+100, nil)
		reserved, fail = 0, failed
		next(e, now+101, failed)
		reserved = now + 200
		next(e, now+200, failed)
	})
}
