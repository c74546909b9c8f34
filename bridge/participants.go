package bridge

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/attach"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Attachment is a participant's stream.
type Attachment = attach.Attachment

// attachHost is the bridge as participants' streams use it.
type attachHost struct{ finder }

// Find implements attach.Host.
func (h attachHost) Find(ctx context.Context, id string) (*session.Session, error) {
	e, err := h.b.find(ctx, id)
	if e == nil {
		return nil, err
	}
	return e.Session, err
}

// Create implements attach.Host.
func (h attachHost) Create(
	ctx context.Context, r *bridgev1.CreateSessionRequest, at string, join *session.Joining,
) (*session.Session, session.Joined, error) {
	return h.b.create(ctx, r, at, join)
}

// Resume implements attach.Host.
func (h attachHost) Resume(
	ctx context.Context, r *bridgev1.ResumeSessionRequest, at string, join *session.Joining,
) (*session.Session, session.Joined, error) {
	return h.b.resume(ctx, r, at, join)
}

// AdmitParticipant implements attach.Host.
func (h attachHost) AdmitParticipant(tenant string) (release func(), err error) {
	return h.b.admission.Participant(tenant)
}

// Tools implements attach.Host.
func (h attachHost) Tools(list []*cliv1.ToolDefinition, at string, exact bool) ([]config.Tool, error) {
	return h.b.tools(list, at, exact)
}

// Declared implements attach.Host.
func (h attachHost) Declared(start *bridgev1.AttachStart, at string) ([]config.Command, jsonobj.Object, error) {
	return h.b.declared(start, at)
}

// Handling implements attach.Host.
func (attachHost) Handling(h *bridgev1.Handlers, at string) (*config.Handling, error) {
	return handling(h, at)
}

// Send implements attach.Host.
func (h attachHost) Send(ctx context.Context, r *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
	return h.b.Send(ctx, r)
}

// Answer implements attach.Host.
func (h attachHost) Answer(
	ctx context.Context, s *session.Session, a *bridgev1.CallbackAnswer, participant string, exact bool,
) (journal.Position, error) {
	return h.b.resolve(ctx, s, a.GetCallbackId(), participant, a.GetAnswer(), answerAt{field: "answer", exact: exact})
}

// Respond implements attach.Host.
func (attachHost) Respond(ctx context.Context, s *session.Session, r *bridgev1.ModelResponse, participant string) error {
	part, err := modelPart(r)
	if err == nil {
		_, err = s.Models().Respond(ctx, participant, part)
	}
	return err
}
