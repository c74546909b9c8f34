package passthrough

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func rawOff() error {
	return fault.New(fault.FeatureDisabled, "RawService is off; the server's operator can switch it on with --raw")
}

// Invoke passes a call through.
func (svc *Service) Invoke(ctx context.Context, r *bridgev1.InvokeRequest) (*bridgev1.InvokeResponse, error) {
	if !svc.cfg.Raw {
		return nil, rawOff()
	}
	method := r.GetMethod()
	if method == "" {
		return nil, fault.New(fault.InvalidField, "method is required").WithField("method")
	}
	params := jsonobj.Object{}
	if text := r.GetParamsJson(); text != "" {
		var err error
		if params, err = jsonobj.Parse([]byte(text)); err != nil {
			return nil, fault.New(fault.InvalidField, "params_json is not a JSON object").WithField("params_json")
		}
	}
	if params.Get("sessionId") != nil {
		return nil, fault.New(fault.JSONExtraForbidden, "the session's id must be in session_id, not in params_json").WithField("params_json")
	}
	profile, err := svc.profile(ctx, r.GetRuntimeProfile())
	if err != nil {
		return nil, err
	}
	c := &call{method: method, id: r.GetSessionId(), params: params, exact: true, profile: &profile}
	result, err := svc.dispatch(ctx, c)
	if err != nil {
		return nil, err
	}
	return &bridgev1.InvokeResponse{ResultJson: string(result)}, nil
}

// RunShell runs a command and emits its output.
func (svc *Service) RunShell(
	ctx context.Context, r *bridgev1.RunShellRequest, emit func(*bridgev1.RunShellResponse) error,
) error {
	if !svc.cfg.Raw {
		return rawOff()
	}
	find := func(ctx context.Context) (*session.Session, error) {
		return svc.cfg.Sessions.Open(ctx, r.GetSessionId())
	}
	return svc.shells.run(ctx, r, find, emit)
}
