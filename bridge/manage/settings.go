package manage

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Abort stops the running turn.
func (svc *Sessions) Abort(ctx context.Context, r *bridgev1.AbortRequest) (*bridgev1.AbortResponse, error) {
	s, err := svc.cfg.Store.Open(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	aborted, err := s.Sender().Abort(ctx, nil)
	if err != nil {
		return nil, err
	}
	position.Record(ctx, aborted.At)
	return &bridgev1.AbortResponse{TurnWasRunning: aborted.Running}, nil
}

// SetModel switches the model.
func (svc *Sessions) SetModel(ctx context.Context, r *bridgev1.SetModelRequest) (*bridgev1.SetModelResponse, error) {
	s, err := svc.cfg.Store.Open(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if r.GetModelId() == "" {
		return nil, fault.New(fault.InvalidField, "model_id is required").WithField("model_id")
	}
	var params jsonobj.Object
	params.SetString("modelId", r.GetModelId())
	if r.GetReasoningEffort() != "" {
		params.SetString("reasoningEffort", r.GetReasoningEffort())
	}
	if r.GetModelCapabilities() != nil {
		text, err := svc.cfg.Codec.ToJSON(r.GetModelCapabilities(), "model_capabilities")
		if err != nil {
			return nil, err
		}
		params.Set("modelCapabilities", text)
	}
	result, at, err := s.Settings().SetModel(ctx, params)
	if err != nil {
		return nil, err
	}
	position.Record(ctx, at)
	var out struct{ ModelID string }
	_ = json.Unmarshal(result, &out) // CLI 1.0.81 does not say
	return &bridgev1.SetModelResponse{ModelId: out.ModelID}, nil
}

// WriteLog writes a line into the session's timeline.
func (svc *Sessions) WriteLog(ctx context.Context, r *bridgev1.WriteLogRequest) (*bridgev1.WriteLogResponse, error) {
	s, err := svc.cfg.Store.Open(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if r.GetMessage() == "" {
		return nil, fault.New(fault.InvalidField, "message is required").WithField("message")
	}
	line := &cliv1.SessionServiceLogRequest{
		Message: r.GetMessage(), Level: r.GetLevel(), Url: request.Optional(r.GetUrl()),
	}
	if r.GetEphemeral() {
		line.Ephemeral = &r.Ephemeral
	}
	text, err := svc.cfg.Codec.ToJSON(line, "log")
	if err != nil {
		return nil, fields.Rename(err, "log.", "")
	}
	params, err := jsonobj.Parse(text)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "log")
	}
	result, at, err := s.Loader().Do(ctx, "session.log", params)
	if err != nil {
		return nil, err
	}
	position.Record(ctx, at)
	var out struct{ EventID string }
	if err := json.Unmarshal(result, &out); err != nil {
		return nil, fault.Wrap(err, fault.CLIProtocolError, "reading the result of session.log")
	}
	return &bridgev1.WriteLogResponse{EventId: out.EventID}, nil
}

// GetForegroundSession returns the session that the host's user interface shows.
func (svc *Sessions) GetForegroundSession(
	ctx context.Context, _ *bridgev1.GetForegroundSessionRequest,
) (*bridgev1.GetForegroundSessionResponse, error) {
	var r struct{ SessionID, WorkspacePath string }
	if err := svc.cfg.Runtimes.Call(ctx, svc.cfg.Tenants.CallerProfile(ctx), "session.getForeground", nil, &r); err != nil {
		return nil, err
	}
	return &bridgev1.GetForegroundSessionResponse{SessionId: r.SessionID, WorkspacePath: r.WorkspacePath}, nil
}

// SetForegroundSession asks the host's user interface to show a session.
func (svc *Sessions) SetForegroundSession(
	ctx context.Context, r *bridgev1.SetForegroundSessionRequest,
) (*bridgev1.SetForegroundSessionResponse, error) {
	s, err := svc.cfg.Store.Open(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	result, at, err := s.Loader().Do(ctx, "session.setForeground", nil)
	if err != nil {
		return nil, err
	}
	if err := session.Refused(result, "session.setForeground"); err != nil {
		return nil, err
	}
	position.Record(ctx, at)
	return &bridgev1.SetForegroundSessionResponse{}, nil
}
