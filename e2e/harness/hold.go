package harness

import (
	"context"
	"sync/atomic"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
)

// Hold is a tool or a permission handler that reports a request, and answers when the test lets go. If the
// participation ends first, it answers nothing.
type Hold struct {
	Asked chan string // the callback's id, each time
	let   chan struct{}
	Calls atomic.Int32
}

// NewHold returns a hold. It may get many requests, though no test makes more than some.
func NewHold() *Hold {
	return &Hold{Asked: make(chan string, 100), let: make(chan struct{})}
}

// Release has it answer, now and from now on.
func (h *Hold) Release() { close(h.let) }

func (h *Hold) wait(ctx context.Context, id string) error {
	h.Calls.Add(1)
	h.Asked <- id
	select {
	case <-h.let:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Tool is a tool that needs no permission.
func (h *Hold) Tool(name, result string) copilot.Tool {
	return copilot.NewTool(name, "Takes its time", func(ctx context.Context, _ struct{}) (string, error) {
		from, _ := copilot.CallFrom(ctx)
		if err := h.wait(ctx, from.CallbackID); err != nil {
			return "", err
		}
		return result, nil
	}, copilot.SkipPermission())
}

// Permission approves once.
func (h *Hold) Permission(ctx context.Context, r *copilot.PermissionRequest) (*copilot.Decision, error) {
	if h.wait(ctx, r.CallbackID) != nil {
		return nil, copilot.ErrAbstain
	}
	return copilot.ApproveOnce(), nil
}
