package sessions

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

const (
	// saveInterval is the shortest time between two rounds of saving: a turn changes its session when
	// it begins, asks and ends, and each round costs the disk a sync. It is about the time of that.
	saveInterval = 20 * time.Millisecond
	// saveRetry and maxSaveRetry bound the pause before sessions are saved again that a failing storage did not take. It
	// doubles while the storage takes nothing, so that the log has few failures.
	saveRetry    = time.Second
	maxSaveRetry = 30 * time.Second
	// saveTogether bounds the sessions that are saved together, and with it how long Save waits for others.
	saveTogether = 64
)

// saver saves sessions that have changed. Make one with newSaver. It is safe for concurrent
// use.
//
// The mutex mu guards the set of changed sessions and the retries, and is held briefly. The mutex saving is held while
// sessions are saved, so that a newer state is never overwritten by an older one. The mutex rounds is
// held during SaveDirty and locked before the other two.
type saver struct {
	save    func(changed []*Entry, later bool) error
	changed chan struct{} // capacity 1

	mu    sync.Mutex
	dirty map[*Entry]struct{}
	// retry is the pause before the next retry; 0 while the storage works. retrying: a timer will wake Run.
	retry    time.Duration
	retrying bool

	saving sync.Mutex
	rounds sync.Mutex
}

// newSaver returns a saver that saves the current states of sessions by save, whose calls do not overlap. later reports
// that no call waits for the save.
func newSaver(save func(changed []*Entry, later bool) error) *saver {
	return &saver{save: save, changed: make(chan struct{}, 1), dirty: map[*Entry]struct{}{}}
}

// MarkDirty has Run save a session. It does not wait.
func (v *saver) MarkDirty(s *Entry) {
	v.mu.Lock()
	v.dirty[s] = struct{}{}
	v.mu.Unlock()
	v.wake()
}

// Save saves a session now. If that fails, Run saves it later.
func (v *saver) Save(s *Entry) (err error) {
	v.Exclusively(func() { err = v.save([]*Entry{s}, false) })
	v.saved([]*Entry{s}, err)
	return err
}

// saved notes how a save has ended. After a failure Run saves the sessions again.
func (v *saver) saved(sessions []*Entry, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		v.retry = 0
	}
	if err == nil || stale(err) {
		return
	}
	for _, s := range sessions {
		v.dirty[s] = struct{}{}
	}
	if v.retrying {
		return
	}
	v.retry = min(max(2*v.retry, saveRetry), maxSaveRetry)
	v.retrying = true
	time.AfterFunc(v.retry, func() {
		v.mu.Lock()
		v.retrying = false
		v.mu.Unlock()
		v.wake()
	})
}

// stale reports whether the storage has refused all that was not saved, because another server has it: a retry is in vain.
func stale(err error) bool {
	if several, ok := err.(interface{ Unwrap() []error }); ok { // of a save of several sessions
		return !slices.ContainsFunc(several.Unwrap(), func(one error) bool { return !stale(one) })
	}
	return errors.Is(err, backend.ErrStale)
}

// wake has Run save what has changed.
func (v *saver) wake() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// Exclusively runs f while no session is being saved.
func (v *saver) Exclusively(f func()) {
	v.saving.Lock()
	defer v.saving.Unlock()
	f()
}

// SaveDirty saves the sessions that were marked before the call. It waits for a round of Run.
func (v *saver) SaveDirty() { v.round(false) }

func (v *saver) round(later bool) {
	v.rounds.Lock()
	defer v.rounds.Unlock()
	v.mu.Lock()
	dirty := v.dirty
	v.dirty = map[*Entry]struct{}{}
	v.mu.Unlock()
	for together := range slices.Chunk(slices.Collect(maps.Keys(dirty)), saveTogether) {
		var err error // the log has it
		v.Exclusively(func() { err = v.save(together, later) })
		v.saved(together, err)
	}
}

// Run saves sessions that are marked, until ctx ends.
func (v *saver) Run(ctx context.Context) {
	paced(ctx, v.changed, saveInterval, func() { v.round(true) })
}

// paced calls f when it is signalled, until ctx ends: at once if the last call was begun at
// least every ago, else when that is over, once for all signals that came meanwhile.
func paced(ctx context.Context, signal <-chan struct{}, every time.Duration, f func()) {
	for {
		select {
		case <-signal:
		case <-ctx.Done():
			return
		}
		pause := time.NewTimer(every)
		f()
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}
