package e2e

import (
	"context"
	"sync/atomic"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
)

// hold is a tool or a permission handler that says when it is asked, and answers when the
// test lets go. If the participation ends first, it answers nothing.
type hold struct {
	asked chan string // the callback's id, each time
	let   chan struct{}
	calls atomic.Int32
}

// newHold returns a hold. It may be asked often, though no test does more than some times.
func newHold() *hold {
	return &hold{asked: make(chan string, 100), let: make(chan struct{})}
}

// release has it answer, now and from now on.
func (h *hold) release() { close(h.let) }

func (h *hold) wait(ctx context.Context, id string) error {
	h.calls.Add(1)
	h.asked <- id
	select {
	case <-h.let:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tool is a tool that needs no permission.
func (h *hold) tool(name, result string) copilot.Tool {
	return copilot.NewTool(name, "Takes its time", func(ctx context.Context, _ struct{}) (string, error) {
		from, _ := copilot.CallFrom(ctx)
		if err := h.wait(ctx, from.CallbackID); err != nil {
			return "", err
		}
		return result, nil
	}, copilot.SkipPermission())
}

// permission approves once.
func (h *hold) permission(ctx context.Context, r *copilot.PermissionRequest) (*copilot.Decision, error) {
	if h.wait(ctx, r.CallbackID) != nil {
		return nil, copilot.ErrAbstain
	}
	return copilot.ApproveOnce(), nil
}
