package sim

import (
	"errors"
	"sync"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// volume keeps a part of what the bridge stores: a disk, or the servers of a cluster.
type volume struct {
	// point is called before and after each change. refused is called when a replica of a cluster learns that its term is over.
	point, refused func()
	mu             sync.Mutex
	// fails: it takes no changes. late: it makes them, and their answers are lost.
	fails, late bool
	// changes is how many changes there are until it works again; zero if nothing but mend ends what is wrong.
	changes int
	// hangs: changes wait until it is closed; nil if they do not.
	hangs chan struct{}
	// patience is how long a change waits for a volume that hangs; zero for ever.
	patience time.Duration
}

// callTimeout is how long the servers of a cluster have for a change, as natsstore.CallTimeout.
const callTimeout = 10 * time.Second

var (
	// errDisk is the error of a disk that fails.
	errDisk = errors.New("the disk fails")
	// errAnswer is the error of a storage across a network that does not answer.
	errAnswer = errors.New("the storage does not answer")
)

// change makes a change.
func (v *volume) change(make func() error) error {
	v.point()
	defer v.point()
	err := v.tryChange(make)
	if errors.Is(err, backend.ErrStale) {
		v.refused()
	}
	return err
}

func (v *volume) tryChange(make func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.await() {
		return errAnswer
	}
	fails, late := v.fails, v.late
	if v.changes--; v.changes == 0 {
		v.fails, v.late = false, false
	}
	if fails {
		return errDisk
	}
	if err := make(); err != nil || !late {
		return err
	}
	return errAnswer
}

// attempt is change for one who waits for nothing. It reports whether the change is to be made, and whether its answer comes.
func (v *volume) attempt() (made, answered bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.hangs != nil {
		return false, false
	}
	made, answered = !v.fails, !v.fails && !v.late
	if v.changes--; v.changes == 0 {
		v.fails, v.late = false, false
	}
	return made, answered
}

// await waits while the volume hangs, and reports whether it answers in time. The caller holds mu.
func (v *volume) await() bool {
	var limit <-chan time.Time
	if v.hangs != nil && v.patience > 0 {
		limit = time.After(v.patience)
	}
	for v.hangs != nil {
		hangs, inTime := v.hangs, true
		v.mu.Unlock()
		select {
		case <-hangs:
		case <-limit:
			inTime = false
		}
		v.mu.Lock()
		if !inTime {
			return false
		}
	}
	return true
}

// hang has the volume hang, or answer again.
func (v *volume) hang(on bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case on && v.hangs == nil:
		v.hangs = make(chan struct{})
	case !on && v.hangs != nil:
		close(v.hangs)
		v.hangs = nil
	}
}

// works reports whether the volume takes changes, and answers.
func (v *volume) works() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.fails && !v.late && v.hangs == nil
}

// mend has the volume work again.
func (v *volume) mend() {
	v.hang(false)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fails, v.late, v.changes = false, false, 0
}

// mend has all parts of the storage of a cluster work again.
func (d disks) mend() {
	for _, part := range d.parts() {
		part.mend()
	}
}

// disturb has a part of the storage of a cluster, or all of it, fail, lose its answers or hang: for one or two changes, or until
// it works again.
func (w *world) disturb(n int) {
	if !w.clustered {
		return
	}
	w.mend()
	w.mu.Lock()
	ended := w.life.ended != nil
	if w.failed = w.failed || !ended; !ended {
		w.note("the storage is disturbed")
	}
	w.mu.Unlock()
	if ended || n >= 24 {
		return
	}
	parts := w.life.disks.parts()
	if n%4 < len(parts) {
		parts = parts[n%4:][:1]
	}
	for _, v := range parts {
		v.mu.Lock()
		v.fails, v.late, v.changes = n/4%3 == 0, n/4%3 == 1, n/12
		v.mu.Unlock()
		v.hang(n/4%3 == 2)
	}
}

// mend has the storage of a cluster work again.
func (w *world) mend() {
	if !w.clustered {
		return
	}
	w.life.disks.mend()
	synctest.Wait()
}

// disturbed reports whether the storage of a cluster has not worked at some time.
func (w *world) disturbed() bool { return w.clustered && w.failed }
