package inbox

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// SendModelResponse gives a part of the answer to a request to a model.
func (svc *Service) SendModelResponse(
	ctx context.Context, r *bridgev1.SendModelResponseRequest,
) (*bridgev1.SendModelResponseResponse, error) {
	s, err := svc.sessions.Following(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	at, err := respond(ctx, s, r.GetResponse(), "")
	if err != nil {
		return nil, fields.Within(err, "response.")
	}
	position.Record(ctx, at)
	return &bridgev1.SendModelResponseResponse{Position: session.Proto(at)}, nil
}

// Respond gives the CLI a part of a participant's response to a model request.
func (*Service) Respond(ctx context.Context, s *session.Session, r *bridgev1.ModelResponse, participant string) error {
	_, err := respond(ctx, s, r, participant)
	return err
}

// respond gives the CLI a part of a model response. Model requests are hidden from guests: for them none is pending.
func respond(
	ctx context.Context, s *session.Session, r *bridgev1.ModelResponse, participant string,
) (journal.Position, error) {
	part, err := modelPart(r)
	if err != nil {
		return journal.Position{}, err
	}
	if !tenancy.Sees(s, caller.From(ctx).Tenant, callback.ForRequest(callback.ModelRequestStart)) {
		return journal.Position{}, session.NoModelRequest(part.RequestID)
	}
	return s.Models().Respond(ctx, participant, part)
}

// modelPart gives a part of a model's response the CLI's form.
func modelPart(r *bridgev1.ModelResponse) (session.ModelPart, error) {
	part := session.ModelPart{RequestID: r.GetRequestId()}
	wrong := func(field, format string, args ...any) (session.ModelPart, error) {
		return part, fault.New(fault.AnswerInvalid, format, args...).WithField(field)
	}
	if part.RequestID == "" {
		return wrong("request_id", "request_id is required")
	}
	switch p := r.GetPart().(type) {
	case *bridgev1.ModelResponse_Head:
		part.Head = true
		status := p.Head.GetStatus()
		if status < 100 || status > 599 {
			return wrong("head.status", "%d is not an HTTP status", status)
		}
		headers := map[string][]string{}
		for name, values := range p.Head.GetHeaders() {
			headers[name] = append([]string{}, values.GetItems()...)
		}
		part.Params.Set("status", text(status))
		part.Params.Set("headers", text(headers))
		if p.Head.GetStatusText() != "" {
			part.Params.SetString("statusText", p.Head.GetStatusText())
		}
	case *bridgev1.ModelResponse_Chunk:
		part.Failure = p.Chunk.GetError() != nil
		part.End = p.Chunk.GetEnd() || part.Failure
		part.Params.SetString("data", p.Chunk.GetText())
		if data, binary := p.Chunk.GetData().(*bridgev1.ModelResponseChunk_Binary); binary {
			part.Params.SetString("data", base64.StdEncoding.EncodeToString(data.Binary))
			part.Params.SetBool("binary", true)
		}
		if p.Chunk.GetEnd() {
			part.Params.SetBool("end", true)
		}
		if e := p.Chunk.GetError(); e != nil {
			failure := map[string]string{"message": e.GetMessage()}
			if e.GetCode() != "" {
				failure["code"] = e.GetCode()
			}
			part.Params.Set("error", text(failure))
		}
	default:
		return wrong("part", "one of head, chunk is required")
	}
	return part, nil
}

// text is the JSON of what always encodes.
func text(v any) json.RawMessage {
	b, _ := json.Marshal(v)
	return b
}
