package sessions

import (
	"sync"
	"time"
)

// epochs issues the epochs of journals, each higher than all before. Its mutex guards last, and is not
// held while Reserve runs. It is safe for concurrent use.
type epochs struct {
	// Reserve reserves an epoch beyond the end of the process, higher than all before; nil without a
	// directory. It is safe for concurrent use.
	Reserve func() (uint64, error)

	mu   sync.Mutex
	last uint64
}

// Next returns the next epoch. If it could not be reserved, the epoch is returned with the error, and
// is valid for this process.
func (e *epochs) Next() (epoch uint64, err error) {
	if e.Reserve != nil {
		epoch, err = e.Reserve()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Reserve == nil || err != nil {
		epoch = max(e.last+1, epoch, uint64(time.Now().UnixMilli()))
	}
	e.last = max(e.last, epoch)
	return epoch, err
}
