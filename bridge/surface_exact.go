package bridge

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// passedOn makes a call in the runtime as it is: in that of its session, or in the first one.
func (b *Bridge) passedOn(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	if aboutSession(c) {
		return b.forward(ctx, c)
	}
	return b.forwardServer(ctx, c)
}

// refused answers a call of a method whose row refuses it: callers who want the CLI's own
// behaviour have it where the row says how.
func (b *Bridge) refused(ctx context.Context, c *cliCall, row *own) (json.RawMessage, error) {
	if row.exact == nil || !c.itsWords(b) || row.sole && !b.cfg.Sole {
		return nil, refusal(c.method, row)
	}
	return row.exact(b, ctx, c)
}

// cliShutdown is session.shutdown.
func (b *Bridge) cliShutdown(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	s, err := b.open(ctx, c.id)
	if err != nil {
		return b.passedOn(ctx, c) // the CLI says what is wrong
	}
	result, at, err := s.Shutdown(ctx, c.params)
	return recorded(ctx, result, at, err)
}

// cliClose is sessions.close: of a session that is open here, its use ends for everybody.
func (b *Bridge) cliClose(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	if s, err := b.open(ctx, c.id); err == nil {
		if _, err := s.Disconnect(ctx, true); err != nil {
			return nil, err
		}
		if c.method == "sessions.delete" {
			defer b.forget(s)
		}
	}
	return b.forwardServer(ctx, c)
}

// exactDelete is session.delete for whoever wants the CLI's own answer.
func (b *Bridge) exactDelete(ctx context.Context, c *cliCall, err error) (json.RawMessage, error) {
	switch fault.ReasonOf(err) {
	case fault.SessionNotFound, fault.InvalidField:
		return b.forwardServer(ctx, c)
	case fault.SessionRefused:
		f, _ := fields.AsFault(err)
		var result session.Object
		result.SetBool("success", false)
		result.SetString("error", f.Message)
		return result.JSON(), nil
	}
	return nil, err
}
