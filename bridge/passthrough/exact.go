package passthrough

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// passOn makes a call in the runtime as it is: in that of its session, or in the first one.
func (svc *Service) passOn(ctx context.Context, c *call) (json.RawMessage, error) {
	if aboutSession(c) {
		return svc.forward(ctx, c)
	}
	return svc.forwardServer(ctx, c)
}

// refuse answers a call of a method whose row refuses it: callers who want the CLI's own
// behaviour have it where the row says how.
func (svc *Service) refuse(ctx context.Context, c *call, row *methodRule) (json.RawMessage, error) {
	if row.exact == nil || !c.passErrors(svc) || row.singleClient && !svc.cfg.SingleClient {
		return nil, refusal(c.method, row)
	}
	return row.exact(svc, ctx, c)
}

// shutDown is session.shutdown.
func (svc *Service) shutDown(ctx context.Context, c *call) (json.RawMessage, error) {
	s, err := svc.cfg.Sessions.Open(ctx, c.id)
	if err != nil {
		return svc.passOn(ctx, c) // the CLI says what is wrong
	}
	result, at, err := s.Loader().Shutdown(ctx, c.params)
	return recorded(ctx, result, at, err)
}

// closeSession implements sessions.close. It ends the use of a session that the bridge has, for all callers.
func (svc *Service) closeSession(ctx context.Context, c *call) (json.RawMessage, error) {
	if s, err := svc.cfg.Sessions.Open(ctx, c.id); err == nil {
		if _, err := s.Loader().Disconnect(ctx, true); err != nil {
			return nil, err
		}
		if c.method == "sessions.delete" {
			defer svc.forget(s)
		}
	}
	return svc.forwardServer(ctx, c)
}

// exactDelete implements session.delete for callers that want the CLI's own result.
func (svc *Service) exactDelete(ctx context.Context, c *call, err error) (json.RawMessage, error) {
	switch fault.ReasonOf(err) {
	case fault.SessionNotFound, fault.InvalidField:
		return svc.forwardServer(ctx, c)
	case fault.SessionRefused:
		f, _ := fields.AsFault(err)
		var result jsonobj.Object
		result.SetBool("success", false)
		result.SetString("error", f.Message)
		return result.JSON(), nil
	}
	return nil, err
}
