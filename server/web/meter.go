package web

import (
	"context"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// meter counts the bytes of a call's requests while the call uses them. The methods of a nil meter do nothing.
type meter struct {
	budget Budget

	mu    sync.Mutex
	taken int
	ended bool
}

func newMeter(b Budget) *meter {
	if b == nil {
		return nil
	}
	return &meter{budget: b}
}

// take counts a message.
func (m *meter) take(n int) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return fault.New(fault.Cancelled, "the call has ended")
	}
	if err := m.budget.Take(n); err != nil {
		return err
	}
	m.taken += n
	return nil
}

// reset gives back all messages so far.
func (m *meter) reset() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.budget.Give(m.taken)
	m.taken = 0
}

// end gives back all messages at the end of the call. A goroutine of the handler may still receive.
func (m *meter) end() {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
	m.reset()
}

// meterKey is the context key of a request's meter.
type meterKey struct{}

func meterOf(ctx context.Context) *meter {
	m, _ := ctx.Value(meterKey{}).(*meter)
	return m
}
