package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/sending"
	"github.com/copilot-grpc/copilot-grpc/bridge/settle"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Send says something to the agent.
func (b *Bridge) Send(ctx context.Context, r *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
	out, err := b.sendOnce(ctx, r)
	if err != nil {
		return nil, err
	}
	// The first answer to the same request may have become untrue.
	if s, err := b.open(ctx, r.GetSessionId()); err == nil {
		again, err := s.Sender().Repeat(ctx, out.GetMessageId())
		if err != nil {
			return nil, err
		}
		if again.ResentID != "" {
			out = proto.Clone(out).(*bridgev1.SendResponse) // the first one is everybody's
			out.ResentMessageId = again.ResentID
		}
	}
	return out, nil
}

func (b *Bridge) sendOnce(ctx context.Context, r *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
	found := func(id string, at journal.Position) *bridgev1.SendResponse {
		return &bridgev1.SendResponse{MessageId: id, Position: session.Proto(at)}
	}
	return sendOnce(ctx, b, idempotency.Send, r, found, func(ctx context.Context) (*bridgev1.SendResponse, error) {
		_, sent, err := b.send(ctx, idempotency.Send, r)
		if err != nil {
			return nil, err
		}
		record(ctx, sent.At)
		return &bridgev1.SendResponse{MessageId: sent.MessageID, Position: session.Proto(sent.At), InMemoryOnly: sent.InMemory}, nil
	})
}

// send has the session of a request take its prompt. call is the rpc's name.
func (b *Bridge) send(ctx context.Context, call string, r sendRequest) (*session.Session, sending.Sent, error) {
	if err := b.shutdown.Accepting(); err != nil {
		return nil, sending.Sent{}, err
	}
	s, err := b.open(ctx, r.GetSessionId())
	if err != nil {
		return nil, sending.Sent{}, err
	}
	m, err := b.prompt(ctx, r.GetPrompt(), "prompt")
	if err != nil {
		return nil, sending.Sent{}, err
	}
	m.Request = settle.Key(ctx, call, r.GetRequestId())
	sent, err := b.say(ctx, s, m)
	return s, sent, err
}

// say has a session take a message, if there is room for its turn.
func (b *Bridge) say(ctx context.Context, s *session.Session, m sending.Message) (sending.Sent, error) {
	release, err := b.admission.Turn(s)
	if err != nil {
		return sending.Sent{}, err
	}
	defer release()
	return s.Sender().Send(ctx, m)
}

// SendStream says something with attachments that come in pieces. next gives the pieces,
// and io.EOF after the last.
func (b *Bridge) SendStream(ctx context.Context, first *bridgev1.SendRequest, next func() (*bridgev1.AttachmentChunk, error)) (*bridgev1.SendStreamResponse, error) {
	r := proto.Clone(first).(*bridgev1.SendRequest)
	total, most := 0, b.tuned.Load().MaxAttachmentBytes
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
			return nil, fault.New(fault.InvalidField, "the attachments have more than %d bytes", most).WithField("chunk.data")
		}
		blob.Data = append(blob.Data, chunk.GetData()...)
	}
	sent, err := b.Send(ctx, r)
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
	return nil, fault.New(fault.InvalidField, "attachment %d is not a blob of the prompt", i).WithField("chunk.attachment")
}

// Abort stops the running turn.
func (b *Bridge) Abort(ctx context.Context, r *bridgev1.AbortRequest) (*bridgev1.AbortResponse, error) {
	s, err := b.open(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	running, at, err := s.Sender().Abort(ctx)
	if err != nil {
		return nil, err
	}
	record(ctx, at)
	return &bridgev1.AbortResponse{TurnWasRunning: running}, nil
}

// SetModel switches the model.
func (b *Bridge) SetModel(ctx context.Context, r *bridgev1.SetModelRequest) (*bridgev1.SetModelResponse, error) {
	s, err := b.open(ctx, r.GetSessionId())
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
		text, err := b.codec.ToJSON(r.GetModelCapabilities(), "model_capabilities")
		if err != nil {
			return nil, err
		}
		params.Set("modelCapabilities", text)
	}
	result, at, err := s.SetModel(ctx, params)
	if err != nil {
		return nil, err
	}
	record(ctx, at)
	var out struct{ ModelID string }
	_ = json.Unmarshal(result, &out) // CLI 1.0.81 does not say
	return &bridgev1.SetModelResponse{ModelId: out.ModelID}, nil
}

// Log writes a line into the session's timeline.
func (b *Bridge) Log(ctx context.Context, r *bridgev1.LogRequest) (*bridgev1.LogResponse, error) {
	s, err := b.open(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if r.GetMessage() == "" {
		return nil, fault.New(fault.InvalidField, "message is required").WithField("message")
	}
	request := &cliv1.SessionServiceLogRequest{Message: r.GetMessage(), Level: r.GetLevel(), Url: optional(r.GetUrl())}
	if r.GetEphemeral() {
		request.Ephemeral = &r.Ephemeral
	}
	text, err := b.codec.ToJSON(request, "log")
	if err != nil {
		return nil, fields.Rename(err, "log.", "")
	}
	params, err := jsonobj.Parse(text)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "log")
	}
	result, at, err := s.Do(ctx, "session.log", params)
	if err != nil {
		return nil, err
	}
	record(ctx, at)
	var out struct{ EventID string }
	if err := json.Unmarshal(result, &out); err != nil {
		return nil, fault.Wrap(err, fault.CLIProtocolError, "reading the result of session.log")
	}
	return &bridgev1.LogResponse{EventId: out.EventID}, nil
}

// UpdateProvider changes parts of the session's provider.
func (b *Bridge) UpdateProvider(ctx context.Context, r *bridgev1.UpdateProviderRequest) (*bridgev1.UpdateProviderResponse, error) {
	s, err := b.open(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	over, err := b.providerChange(r)
	if err != nil {
		return nil, err
	}
	err = s.SetProvider(ctx, func(provider jsonobj.Object) (jsonobj.Object, error) {
		if s.ProviderRef() != "" && caller.From(ctx).Tenant != caller.HostTenant {
			provider = nil // another address would be sent the host's keys
		}
		provider = over(provider)
		if provider.String("baseUrl") == "" {
			return nil, fault.New(fault.InvalidField, "the provider has no base_url").WithField("provider.base_url")
		}
		return provider, nil
	}, r.GetModelId())
	if err != nil {
		return nil, err
	}
	record(ctx, s.Journal().Last())
	return &bridgev1.UpdateProviderResponse{}, nil
}

// providerChange returns what the request does to a provider.
func (b *Bridge) providerChange(r *bridgev1.UpdateProviderRequest) (func(jsonobj.Object) jsonobj.Object, error) {
	given := r.GetProvider()
	if given == nil {
		given = &cliv1.ProviderConfig{}
	}
	members := given.ProtoReflect().Descriptor().Fields()
	var names []string // the CLI's members that change
	paths := r.GetUpdateMask().GetPaths()
	all := slices.Equal(paths, []string{"*"})
	if all {
		paths = nil
	}
	for _, path := range paths {
		fd := members.ByName(protoreflect.Name(path))
		// json_extra is no member but some: they change without being named, or with all.
		if fd == nil || path == "json_extra" {
			return nil, fault.New(fault.InvalidField, "the provider has no field %q", path).WithField("update_mask")
		}
		names = append(names, fd.JSONName())
	}
	text, err := b.codec.ToJSON(given, "provider")
	if err != nil {
		return nil, err
	}
	values, err := jsonobj.Parse(text)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "provider")
	}
	if all {
		return func(jsonobj.Object) jsonobj.Object { return values }, nil
	}
	if len(names) == 0 {
		if given.GetBaseUrl() == "" {
			values.Set("baseUrl", nil) // required, so always written; unset means unchanged
		}
		return func(provider jsonobj.Object) jsonobj.Object { return provider.Merge(values) }, nil
	}
	return func(provider jsonobj.Object) jsonobj.Object {
		for _, name := range names {
			provider.Set(name, values.Get(name))
		}
		return provider
	}, nil
}

// ProvideCredentials gives back secrets that the bridge has lost.
func (b *Bridge) ProvideCredentials(ctx context.Context, r *bridgev1.ProvideCredentialsRequest) (*bridgev1.ProvideCredentialsResponse, error) {
	s, err := b.open(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	text, err := b.codec.ToJSON(r.GetProvider(), "provider")
	if err != nil {
		return nil, err
	}
	values, err := jsonobj.Parse(text)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "provider")
	}
	var secrets jsonobj.Object
	for _, name := range []string{"apiKey", "bearerToken", "headers"} {
		secrets.Set(name, values.Get(name))
	}
	if len(secrets) == 0 && r.GetGithubToken() == "" {
		return nil, fault.New(fault.InvalidField, "neither a provider's secrets nor a GitHub token").WithField("provider")
	}
	if err := s.SetCredentials(ctx, secrets, r.GetGithubToken()); err != nil {
		return nil, err
	}
	record(ctx, s.Journal().Last())
	return &bridgev1.ProvideCredentialsResponse{Session: s.Snapshot()}, nil
}

// closeTimeout bounds ending a session that was made for one turn.
const closeTimeout = 30 * time.Second
