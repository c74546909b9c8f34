package registry

import (
	"sync"
	"time"
)

// Epochs issues the epochs of journals, each higher than all before. Its mutex guards last. It is
// safe for concurrent use.
type Epochs struct {
	// Reserve reserves an epoch on disk; nil without a disk.
	Reserve func() (uint64, error)

	mu   sync.Mutex
	last uint64
}

// Next returns the next epoch. If it could not be reserved on disk, the epoch is returned with
// the error, and is valid for this process.
func (e *Epochs) Next() (uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = max(e.last+1, uint64(time.Now().UnixMilli()))
	if e.Reserve == nil {
		return e.last, nil
	}
	reserved, err := e.Reserve()
	e.last = max(e.last, reserved)
	return e.last, err
}
