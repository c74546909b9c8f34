package prompt

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// sendRequest is a request with a prompt.
type sendRequest interface {
	proto.Message
	GetSessionId() string
	GetRequestId() string
	GetPrompt() *bridgev1.Prompt
}

// textsOf returns the texts by which the history may show a prompt.
func textsOf(p *bridgev1.Prompt) []string {
	if p.GetDisplayText() == "" {
		return []string{p.GetText()}
	}
	return []string{p.GetText(), p.GetDisplayText()}
}

// once returns the operation that carries out a call with a prompt by do, once for each request id. found makes the answer
// of a message that the history has.
func once[T proto.Message](
	ctx context.Context, svc *Service, call string, r sendRequest, found func(messageID string, at journal.Position) T,
	do func(context.Context, func(T, error)),
) idempotency.Operation[T] {
	p := Interrupted{
		SessionID: r.GetSessionId(), Key: RequestKey(ctx, call, r.GetRequestId()), Texts: textsOf(r.GetPrompt()),
	}
	return idempotency.Operation[T]{
		Scope: idempotency.On(call, r.GetSessionId()), ID: r.GetRequestId(), Request: r, Detach: true, Do: do,
		Settle: Settlement(svc.cfg.Sessions.Open, p, found),
	}
}

// Send sends a prompt.
func (svc *Service) Send(ctx context.Context, r *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
	return async.Wait(ctx, func(done func(*bridgev1.SendResponse, error)) { svc.Start(ctx, nil, r, done) })
}

// Start sends a prompt to a session that the caller may use; with nil, to the one that the request names, which Start may
// wait for. done receives the answer on another goroutine, which it may block.
func (svc *Service) Start(
	ctx context.Context, s *session.Session, r *bridgev1.SendRequest, done func(*bridgev1.SendResponse, error),
) {
	if r.GetRequestId() == "" {
		svc.startSend(ctx, s, r, done)
		return
	}
	op := once(ctx, svc, backend.OpSend, r, foundSent, func(ctx context.Context, done func(*bridgev1.SendResponse, error)) {
		svc.startSend(ctx, s, r, done)
	})
	op.Repeated = func(ctx context.Context, out *bridgev1.SendResponse) (*bridgev1.SendResponse, error) {
		return svc.repeated(ctx, r, out)
	}
	idempotency.Start(ctx, svc.cfg.Operations, op, done)
}

// startSend sends the prompt of a request, as Start does.
func (svc *Service) startSend(
	ctx context.Context, s *session.Session, r *bridgev1.SendRequest, done func(*bridgev1.SendResponse, error),
) {
	s, m, err := svc.promptOf(ctx, backend.OpSend, s, r)
	if err != nil {
		svc.cfg.Shutdown.Spawn(func() { done(nil, err) })
		return
	}
	svc.StartMessage(ctx, s, m, func(sent session.Sent, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		position.Record(ctx, sent.At)
		done(responseOf(sent), nil)
	})
}

// repeated returns the answer that an earlier request with the same id got, as far as it is still true.
func (svc *Service) repeated(
	ctx context.Context, r *bridgev1.SendRequest, out *bridgev1.SendResponse,
) (*bridgev1.SendResponse, error) {
	s, err := svc.cfg.Sessions.Open(ctx, r.GetSessionId())
	if err != nil {
		return out, nil // it stands as far as is known
	}
	again, err := s.Sender().Repeat(ctx, out.GetMessageId())
	if err != nil || again.ResentID == "" {
		return out, err
	}
	out = proto.Clone(out).(*bridgev1.SendResponse) // all callers share the first one
	out.ResentMessageId = again.ResentID
	return out, nil
}

// foundSent is the answer to a Send whose message the history has.
func foundSent(id string, at journal.Position) *bridgev1.SendResponse {
	return &bridgev1.SendResponse{MessageId: id, Position: session.Proto(at)}
}

func responseOf(sent session.Sent) *bridgev1.SendResponse {
	return &bridgev1.SendResponse{
		MessageId: sent.MessageID, Position: session.Proto(sent.At), InMemoryOnly: sent.InMemory,
	}
}

// promptOf returns the message of a request, and the session that it is for: s, if that is not nil. call is the rpc's name.
func (svc *Service) promptOf(
	ctx context.Context, call string, s *session.Session, r sendRequest,
) (*session.Session, session.Message, error) {
	err := svc.cfg.Shutdown.Accepting()
	if err == nil && s == nil {
		s, err = svc.cfg.Sessions.Open(ctx, r.GetSessionId())
	}
	if err != nil {
		return nil, session.Message{}, err
	}
	m, err := svc.cfg.Parser.Prompt(caller.From(ctx), r.GetPrompt())
	m.Request = RequestKey(ctx, call, r.GetRequestId())
	return s, m, err
}

// StartMessage sends a message to a session, if there is room for its turn. done is called once, on another goroutine,
// which it may block.
func (svc *Service) StartMessage(
	ctx context.Context, s *session.Session, m session.Message, done func(session.Sent, error),
) {
	release, err := svc.cfg.Admission.Turn(s)
	if err != nil {
		svc.cfg.Shutdown.Spawn(func() { done(session.Sent{}, err) })
		return
	}
	s.Sender().Start(ctx, m, func(sent session.Sent, err error) {
		release()
		done(sent, err)
	})
}

// SendStream sends a prompt with attachments that arrive in pieces. next returns the pieces, and
// io.EOF after the last.
func (svc *Service) SendStream(
	ctx context.Context, first *bridgev1.SendRequest, next func() (*bridgev1.AttachmentChunk, error),
) (*bridgev1.SendStreamResponse, error) {
	r := proto.Clone(first).(*bridgev1.SendRequest)
	total, most := 0, svc.cfg.MaxAttachmentBytes()
	for {
		chunk, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		blob, err := blobAt(r, int(chunk.GetAttachment()))
		if err != nil {
			return nil, err
		}
		if total += len(chunk.GetData()); total > most {
			return nil, fault.New(fault.InvalidField, "the attachments have more than %d bytes", most).
				WithField("chunk.data")
		}
		blob.Data = append(blob.Data, chunk.GetData()...)
	}
	sent, err := svc.Send(ctx, r)
	if err != nil {
		return nil, err
	}
	return &bridgev1.SendStreamResponse{
		MessageId: sent.GetMessageId(), Position: sent.GetPosition(),
		ResentMessageId: sent.GetResentMessageId(), InMemoryOnly: sent.GetInMemoryOnly(),
	}, nil
}

// blobAt returns the blob that a chunk belongs to.
func blobAt(r *bridgev1.SendRequest, i int) (*cliv1.AttachmentBlob, error) {
	attachments := r.GetPrompt().GetAttachments()
	if i >= 0 && i < len(attachments) {
		if blob := attachments[i].GetBlob(); blob != nil {
			return blob, nil
		}
	}
	return nil, fault.New(fault.InvalidField, "attachment %d is not a blob of the prompt", i).
		WithField("chunk.attachment")
}
