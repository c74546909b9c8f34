package copilot

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/content"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// errNoParticipant refuses to a handle what only a participant can do.
var errNoParticipant = errors.New("copilot: only a participant can do this: join the session")

// SendOption changes what is sent, or how its turn is waited for.
type SendOption func(*sendOptions)

type sendOptions struct {
	prompt      *bridgev1.Prompt
	requestID   string
	idleTimeout time.Duration
	timeout     time.Duration
	filter      *bridgev1.EventFilter
	stream      *bridgev1.StreamOptions
	contents    []content.Content
}

func newSendOptions(text string, opts []SendOption) *sendOptions {
	o := &sendOptions{prompt: &bridgev1.Prompt{Text: text}, requestID: newRequestID()}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// injectTrace gives the prompt the trace of ctx, unless it has one.
func (s *Session) injectTrace(ctx context.Context, prompt *bridgev1.Prompt) {
	if inject := s.client.tracing.Inject; inject != nil && prompt.GetTraceparent() == "" {
		prompt.Traceparent, prompt.Tracestate = inject(ctx)
	}
}

// WithPrompt changes any field of the prompt: its mode, headers, response format, ….
func WithPrompt(change func(*bridgev1.Prompt)) SendOption {
	return func(o *sendOptions) { change(o.prompt) }
}

// WithAttachments attaches files, folders, selections, images and the like, as messages.
// [AttachPath], [AttachFile], [AttachBytes] and [AttachReader] make the usual ones.
func WithAttachments(attachments ...*cliv1.Attachment) SendOption {
	return func(o *sendOptions) { o.prompt.Attachments = append(o.prompt.Attachments, attachments...) }
}

// Immediately steers the running turn, rather than wait for its end.
func Immediately() SendOption {
	return func(o *sendOptions) { o.prompt.Mode = cliv1.SendMode_SEND_MODE_IMMEDIATE }
}

// WithRequestID makes the send idempotent across restarts of this program: the server
// sends a prompt once for each id. Default: a random id, with which the client
// repeats a call after a broken connection.
func WithRequestID(id string) SendOption { return func(o *sendOptions) { o.requestID = id } }

// WithIdleTimeout makes [Session.SendAndWait] give up waiting when the session was
// silent for so long; time in which a tool, a callback or a shell runs does not count.
func WithIdleTimeout(d time.Duration) SendOption { return func(o *sendOptions) { o.idleTimeout = d } }

// WithTimeout makes [Session.SendAndWait] give up waiting after so long. Unlike the end
// of its context, that is an outcome and not an error.
func WithTimeout(d time.Duration) SendOption { return func(o *sendOptions) { o.timeout = d } }

// WithTurnEvents chooses the events that [Session.Run] yields, and their form. Either may
// be nil; default: all but the large ones.
func WithTurnEvents(filter *bridgev1.EventFilter, stream *bridgev1.StreamOptions) SendOption {
	return func(o *sendOptions) { o.filter, o.stream = filter, stream }
}

// Send sends a prompt to the agent, and returns when the CLI has accepted it. The events
// of the turn have later positions than the reply. After a broken connection the client
// repeats the call; the prompt is sent once.
func (s *Session) Send(ctx context.Context, text string, opts ...SendOption) (*bridgev1.SendResponse, error) {
	o := newSendOptions(text, opts)
	s.injectTrace(ctx, o.prompt)
	large, err := o.inline(false)
	if err != nil {
		return nil, err
	}
	req := &bridgev1.SendRequest{RequestId: o.requestID, SessionId: s.id, Prompt: o.prompt}
	policy := s.client.callPolicy()
	if slices.ContainsFunc(large, func(c content.Content) bool { return c.Once }) {
		policy = ReconnectPolicy{}
	}
	var resp *bridgev1.SendResponse
	err = retry(ctx, policy, func() (err error) {
		if len(large) > 0 {
			resp, err = s.sendStream(ctx, req, large)
		} else {
			resp, err = invoke(ctx, s, s.client.sessions.Send, req)
		}
		return err
	})
	s.pos.Note(resp.GetPosition())
	return resp, err
}

// SendAndWait says something to the agent and waits until the turn has ended. A turn
// that fails is an outcome and no error: see [Outcome.Err]. When ctx ends first, the
// turn goes on: [Session.Abort] stops it.
func (s *Session) SendAndWait(ctx context.Context, text string, opts ...SendOption) (*Outcome, error) {
	o := newSendOptions(text, opts)
	s.injectTrace(ctx, o.prompt)
	if _, err := o.inline(true); err != nil {
		return nil, err
	}
	req := &bridgev1.SendAndWaitRequest{RequestId: o.requestID, SessionId: s.id, Prompt: o.prompt}
	if o.idleTimeout > 0 {
		req.IdleTimeout = durationpb.New(o.idleTimeout)
	}
	if o.timeout > 0 {
		req.Timeout = durationpb.New(o.timeout)
	}
	var resp *bridgev1.SendAndWaitResponse
	// The wait may be long, and so may what interrupts it.
	err := retry(ctx, s.client.reconnect, func() (err error) {
		resp, err = invoke(ctx, s, s.client.sessions.SendAndWait, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.pos.Note(resp.GetOutcome().GetEndPosition())
	return &Outcome{MessageID: resp.GetMessageId(), Proto: resp.GetOutcome()}, nil
}

// Abort stops the running turn and what is queued, and reports whether a turn was running.
func (s *Session) Abort(ctx context.Context) (bool, error) {
	resp, err := invoke(ctx, s, s.client.sessions.Abort, &bridgev1.AbortRequest{SessionId: s.id})
	return resp.GetTurnWasRunning(), err
}

// Get tells how the session is now.
func (s *Session) Get(ctx context.Context) (*SessionInfo, error) {
	resp, err := invoke(ctx, s, s.client.sessions.GetSession, &bridgev1.GetSessionRequest{SessionId: s.id})
	if err != nil {
		return nil, err
	}
	return newSessionInfo(resp.GetSession()), nil
}

// SetModel switches the session's model, from its next turn on. The reasoning effort may
// be empty: the model's own. It returns the model in use from now on, where the CLI
// tells it.
func (s *Session) SetModel(ctx context.Context, modelID, reasoningEffort string) (string, error) {
	req := &bridgev1.SetModelRequest{SessionId: s.id, ModelId: modelID, ReasoningEffort: reasoningEffort}
	resp, err := invoke(ctx, s, s.client.sessions.SetModel, req)
	return resp.GetModelId(), err
}

// UpdateLabels sets labels of the session and removes others by their keys; the remaining labels stay. It returns the
// session's labels.
func (s *Session) UpdateLabels(
	ctx context.Context, set map[string]string, remove ...string,
) (map[string]string, error) {
	req := &bridgev1.UpdateLabelsRequest{SessionId: s.id, Set: set, Remove: remove}
	resp, err := invoke(ctx, s, s.client.sessions.UpdateLabels, req)
	return resp.GetSession().GetLabels(), err
}

// LogOption changes a line that [Session.Log] writes.
type LogOption func(*bridgev1.WriteLogRequest)

// LogLevel sets how serious the line is; default: info.
func LogLevel(level cliv1.SessionLogLevel) LogOption {
	return func(r *bridgev1.WriteLogRequest) { r.Level = level }
}

// LogEphemeral keeps the line out of the history.
func LogEphemeral() LogOption { return func(r *bridgev1.WriteLogRequest) { r.Ephemeral = true } }

// LogURL adds a link for more.
func LogURL(url string) LogOption { return func(r *bridgev1.WriteLogRequest) { r.Url = url } }

// Log writes a line into the session's timeline, for its users, not for the model. It
// returns the id of the event that it became.
func (s *Session) Log(ctx context.Context, message string, opts ...LogOption) (string, error) {
	req := &bridgev1.WriteLogRequest{SessionId: s.id, Message: message}
	for _, opt := range opts {
		opt(req)
	}
	resp, err := invoke(ctx, s, s.client.sessions.WriteLog, req)
	return resp.GetEventId(), err
}

// Pending lists the callbacks that wait for an answer, oldest first.
func (s *Session) Pending(ctx context.Context) ([]*Callback, error) {
	resp, err := invoke(ctx, s, s.client.callbacks.ListPending, &bridgev1.ListPendingRequest{SessionId: s.id})
	var all []*Callback
	for _, cb := range resp.GetCallbacks() {
		all = append(all, newCallback(cb))
	}
	return all, err
}

// Resolve answers any callback of the session by its id. [AnswerTool], [AnswerApprove],
// [AnswerReject], [AnswerPermission], [AnswerWith] and [AnswerRequest] make answers.
func (s *Session) Resolve(ctx context.Context, callbackID string, answer *bridgev1.Answer) error {
	req := &bridgev1.ResolveRequest{
		SessionId: s.id, CallbackId: callbackID, Answer: answer, RequestId: newRequestID(),
	}
	return retry(ctx, s.client.callPolicy(), func() error {
		_, err := invoke(ctx, s, s.client.callbacks.Resolve, req)
		return err
	})
}

// callPolicy is how calls are repeated; not at all where streams are not.
func (c *Client) callPolicy() ReconnectPolicy {
	if c.reconnect.GiveUpAfter == 0 {
		return ReconnectPolicy{}
	}
	return callPolicy
}

// invoke makes a call about the session and notes the position of its reply.
func invoke[Req, Resp any](
	ctx context.Context, s *Session,
	rpc func(context.Context, *Req, ...grpc.CallOption) (*Resp, error), req *Req,
) (*Resp, error) {
	var trailer metadata.MD
	resp, err := rpc(ctx, req, grpc.Trailer(&trailer))
	s.pos.NoteTrailer(trailer)
	return resp, FromError(err)
}

// setTools replaces the participant's tools, on the server too.
func (p *participant) setTools(ctx context.Context, tools map[string]Tool) error {
	p.settingTools.Lock()
	defer p.settingTools.Unlock()
	before := p.handlers.setTools(tools) // first, so that calls find them
	l, err := p.live(ctx)
	if err == nil {
		var replied bool
		replied, err = p.command(ctx, l, &bridgev1.AttachCommand{
			CommandId: newRequestID(),
			Command: &bridgev1.AttachCommand_SetTools{SetTools: &bridgev1.SetToolsCommand{
				Tools: definitions(tools, false),
			}},
		})
		if !replied {
			// The link broke; the next one begins with the new tools.
			_, err = p.live(ctx)
		}
	}
	if err == nil {
		return nil
	}
	p.handlers.setTools(before)
	return FromError(err)
}
