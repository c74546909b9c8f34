package turns

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/sending"
	"github.com/copilot-grpc/copilot-grpc/bridge/settle"
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

// sendOnce sends a prompt by f, once for each request id. found makes the answer of a message
// that the history has.
func sendOnce[T proto.Message](
	ctx context.Context, svc *Service, call string, r sendRequest,
	found func(messageID string, at journal.Position) T, f func(context.Context) (T, error),
) (T, error) {
	op := operationOf(ctx, svc, call, r, found)
	op.Do = f
	return operation.Run(ctx, svc.operations, op)
}

// operationOf returns the operation of sendOnce, without its Do.
func operationOf[T proto.Message](
	ctx context.Context, svc *Service, call string, r sendRequest,
	found func(messageID string, at journal.Position) T,
) operation.Operation[T] {
	p := settle.Prompt{
		SessionID: r.GetSessionId(), Key: settle.Key(ctx, call, r.GetRequestId()), Texts: textsOf(r.GetPrompt()),
	}
	return operation.Operation[T]{
		Scope: operation.On(call, r.GetSessionId()), ID: r.GetRequestId(), Request: r, Detach: true,
		Settle: settle.Sent(svc.sessions.Open, p, found),
	}
}

// Send sends a prompt.
func (svc *Service) Send(ctx context.Context, r *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
	out, err := svc.sendOnce(ctx, r)
	if err != nil {
		return nil, err
	}
	// The first answer to the same request may have become untrue.
	if s, err := svc.sessions.Open(ctx, r.GetSessionId()); err == nil {
		again, err := s.Sender().Repeat(ctx, out.GetMessageId())
		if err != nil {
			return nil, err
		}
		if again.ResentID != "" {
			out = proto.Clone(out).(*bridgev1.SendResponse) // all callers share the first one
			out.ResentMessageId = again.ResentID
		}
	}
	return out, nil
}

func (svc *Service) sendOnce(ctx context.Context, r *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
	send := func(ctx context.Context) (*bridgev1.SendResponse, error) {
		_, sent, err := svc.send(ctx, idempotency.Send, r)
		if err != nil {
			return nil, err
		}
		position.Record(ctx, position.Position(sent.At))
		return responseOf(sent), nil
	}
	return sendOnce(ctx, svc, idempotency.Send, r, foundSent, send)
}

// foundSent is the answer to a Send whose message the history has.
func foundSent(id string, at journal.Position) *bridgev1.SendResponse {
	return &bridgev1.SendResponse{MessageId: id, Position: session.Proto(at)}
}

// Start sends a prompt to a session that the caller may use, as StartMessage does: Send does it if Start returns false.
func (svc *Service) Start(
	ctx context.Context, s *session.Session, r *bridgev1.SendRequest, done func(*bridgev1.SendResponse, error),
) bool {
	if len(r.GetPrompt().GetAttachments()) > 0 {
		return false
	}
	m, err := svc.parser.Prompt(caller.From(ctx), r.GetPrompt(), "prompt")
	if err != nil {
		return false
	}
	m.Request = settle.Key(ctx, idempotency.Send, r.GetRequestId())
	var begin func() *idempotency.Begun
	if r.GetRequestId() != "" {
		begin = func() *idempotency.Begun {
			op := operationOf(ctx, svc, idempotency.Send, r, foundSent)
			return operation.Begin(ctx, svc.operations, &op)
		}
	}
	return svc.StartMessage(ctx, s, m, begin, func(sent sending.Sent, begun *idempotency.Begun, err error) {
		if err != nil {
			begun.End(nil, err)
			done(nil, err)
			return
		}
		out := responseOf(sent)
		begun.End(out, nil)
		done(out, nil)
	})
}

// StartMessage sends a message as sending.Sender.Start does, if there is room for its turn. With a request id, begin
// begins the request, or returns nil if it may have been made before: the message is then sent after the request was
// recorded, also if the session must be loaded for that. done, which may block, ends the request on another goroutine.
// StartMessage returns false, and does nothing, if the message cannot be sent so.
func (svc *Service) StartMessage(
	ctx context.Context, s *session.Session, m sending.Message, begin func() *idempotency.Begun,
	done func(sending.Sent, *idempotency.Begun, error),
) bool {
	if svc.shutdown.Accepting() != nil || !s.Sender().Startable(m) {
		return false
	}
	release, err := svc.admission.Turn(s)
	if err != nil {
		return false
	}
	started := false
	defer func() {
		if !started { // also after a panic, which the caller may handle
			release()
		}
	}()
	var begun *idempotency.Begun
	end := func(sent sending.Sent, err error) {
		release()
		done(sent, begun, err)
	}
	if begin == nil {
		started = s.Sender().Start(ctx, m, end)
		return started
	}
	if begun = begin(); begun == nil {
		return false
	}
	started = true
	svc.shutdown.Spawn(func() {
		begun.Record()
		if !s.Sender().Start(ctx, m, end) {
			svc.operations.GoFor(ctx, func(ctx context.Context) { end(s.Sender().Send(ctx, m)) })
		}
	})
	return true
}

func responseOf(sent sending.Sent) *bridgev1.SendResponse {
	return &bridgev1.SendResponse{
		MessageId: sent.MessageID, Position: session.Proto(sent.At), InMemoryOnly: sent.InMemory,
	}
}

// send sends the prompt of a request to its session. call is the rpc's name.
func (svc *Service) send(ctx context.Context, call string, r sendRequest) (*session.Session, sending.Sent, error) {
	if err := svc.shutdown.Accepting(); err != nil {
		return nil, sending.Sent{}, err
	}
	s, err := svc.sessions.Open(ctx, r.GetSessionId())
	if err != nil {
		return nil, sending.Sent{}, err
	}
	m, err := svc.parser.Prompt(caller.From(ctx), r.GetPrompt(), "prompt")
	if err != nil {
		return nil, sending.Sent{}, err
	}
	m.Request = settle.Key(ctx, call, r.GetRequestId())
	sent, err := svc.Submit(ctx, s, m)
	return s, sent, err
}

// Submit sends a message to a session, if there is room for its turn.
func (svc *Service) Submit(ctx context.Context, s *session.Session, m sending.Message) (sending.Sent, error) {
	release, err := svc.admission.Turn(s)
	if err != nil {
		return sending.Sent{}, err
	}
	defer release()
	return s.Sender().Send(ctx, m)
}

// SendStream sends a prompt with attachments that arrive in pieces. next returns the pieces, and
// io.EOF after the last.
func (svc *Service) SendStream(
	ctx context.Context, first *bridgev1.SendRequest, next func() (*bridgev1.AttachmentChunk, error),
) (*bridgev1.SendStreamResponse, error) {
	r := proto.Clone(first).(*bridgev1.SendRequest)
	total, most := 0, svc.maxAttachment()
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
