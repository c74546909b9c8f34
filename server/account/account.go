// Package account counts the memory that the requests of one call use, from the first byte that arrives until the call
// ends. Account.mu guards its counts, and is held while the budget is called. The package starts no goroutines.
package account

import (
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Budget counts the memory of requests, for instance those of a caller. It is called with locks held, and must neither
// block nor call back.
type Budget interface {
	// Take adds n bytes. An error refuses them: whoever asked then gives them back by Change.
	Take(n int) error
	// Change adds or subtracts bytes that are never refused.
	Change(n int)
}

// Account is the memory that a call's requests use now. It is safe for concurrent use. The methods of a nil Account do
// nothing.
type Account struct {
	budget Budget

	mu sync.Mutex
	// opened is the cost of the call without its messages.
	opened int
	// arrived is the number of bytes received, unpacked that of the messages in them after decompression, decoded what
	// decoding adds to those. A message without compression is either in the receive buffer or a message of its own, so
	// the larger of arrived and unpacked counts.
	arrived, unpacked, decoded int
	ended                      bool
}

// New returns an account for a call; nil without a budget.
func New(b Budget) *Account {
	if b == nil {
		return nil
	}
	return &Account{budget: b}
}

// held is the sum that the budget has for the account. The caller holds mu.
func (a *Account) held() int { return a.opened + max(a.arrived, a.unpacked) + a.decoded }

// Open counts the call itself.
func (a *Account) Open(n int) error {
	if a == nil {
		return nil
	}
	return a.take(&a.opened, n)
}

// Arrive counts received bytes.
func (a *Account) Arrive(n int) error {
	if a == nil {
		return nil
	}
	return a.take(&a.arrived, n)
}

// Unpack counts the bytes of a message after decompression.
func (a *Account) Unpack(n int) error {
	if a == nil {
		return nil
	}
	return a.take(&a.unpacked, n)
}

// Decode counts what decoding adds to the bytes of a message.
func (a *Account) Decode(n int) error {
	if a == nil {
		return nil
	}
	return a.take(&a.decoded, n)
}

// take adds n to one of the counts, unless the budget refuses it.
func (a *Account) take(count *int, n int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return fault.New(fault.Cancelled, "the call has ended")
	}
	before := a.held()
	*count += n
	more := a.held() - before
	if more == 0 {
		return nil
	}
	if err := a.budget.Take(more); err != nil {
		*count -= n
		a.budget.Change(-more)
		return err
	}
	return nil
}

// Reset gives back all messages so far.
func (a *Account) Reset() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.held()
	a.arrived, a.unpacked, a.decoded = 0, 0, 0
	a.give(before - a.held())
}

// End gives back everything. Later bytes are refused: a goroutine of the handler may still receive.
func (a *Account) End() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	held := a.held()
	a.opened, a.arrived, a.unpacked, a.decoded, a.ended = 0, 0, 0, 0, true
	a.give(held)
}

func (a *Account) give(n int) {
	if n > 0 {
		a.budget.Change(-n)
	}
}
