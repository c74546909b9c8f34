package attach

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/manage"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// create creates the session of a participant. If the session exists and the caller wants the CLI's own
// behaviour, create resumes it.
func (a *Attachment) create(ctx context.Context, r *bridgev1.CreateSessionRequest, j *session.Joining) (*session.Session, session.Joined, error) {
	s, joined, err := a.svc.cfg.Opener.Create(ctx, r, manage.IDOf(ctx, backend.OpAttach, r), "create.", j)
	if !j.Exact || fault.ReasonOf(err) != fault.SessionExists {
		return s, joined, err
	}
	a.begin.Tail = true
	if s, err := a.svc.cfg.Sessions.Open(ctx, r.GetSessionId()); err == nil {
		a.begin.After = session.Proto(s.Journal().Last())
	}
	return a.svc.cfg.Opener.Resume(ctx, &bridgev1.ResumeSessionRequest{
		SessionId: r.GetSessionId(), Config: r.GetConfig(), Lifetime: r.GetLifetime(),
		Handlers: r.GetHandlers(), CallbackTimeout: r.GetCallbackTimeout(), RuntimeProfile: r.GetRuntimeProfile(),
		OnInterruption: r.GetOnInterruption(),
	}, "create.", j)
}

// refusal is the error of a start that failed.
func (a *Attachment) refusal(err error) error {
	if !a.start.GetExact() {
		return fields.Within(err, "start.")
	}
	method, id := "session.create", a.start.GetCreate().GetSessionId()
	if r := a.start.GetResume(); r != nil {
		method, id = "session.resume", r.GetSessionId()
	} else if a.start.GetJoinSessionId() != "" {
		method, id = "session.resume", a.start.GetJoinSessionId()
	}
	return session.Exactly(fields.Within(err, "start."), method, id)
}

// exactlySent is the reply to exact_send.
func exactlySent(result *cliv1.SessionServiceSendResponse, at journal.Position) *bridgev1.AttachDone {
	done := &bridgev1.AttachDone{MessageId: result.GetMessageId(), SendResult: result}
	if at != (journal.Position{}) {
		done.Position = session.Proto(at)
	}
	return done
}

// checkExact checks the prompt of a command exact_send.
func (a *Attachment) checkExact(r *cliv1.SessionServiceSendRequest) error {
	const at = "command.exact_send"
	switch {
	case !a.start.GetExact():
		return fault.New(fault.InvalidField, "the participation was not started with exact").WithField(at)
	case r.GetSessionId() != a.name:
		return fault.New(fault.InvalidField, "the session of this stream is %q", a.name).WithField(at + ".session_id")
	case r.GetWait():
		return fault.New(fault.InvalidField, "a command cannot wait for the end of a turn").WithField(at + ".wait")
	}
	return nil
}

// answered says in started what the CLI answered, to a caller that asks for that.
func (a *Attachment) answered(started *bridgev1.AttachStarted) {
	if !a.start.GetExact() {
		return
	}
	answer, at := a.s.Participants().Opened()
	started.Position = session.Proto(at)
	var err error
	switch a.start.GetSession().(type) {
	case *bridgev1.AttachStart_Create:
		result := &cliv1.SessionServiceCreateResponse{}
		err = a.svc.cfg.Codec.FromJSONAs(answer, result, translate.Exact)
		started.Result = &bridgev1.AttachStarted_CreateResult{CreateResult: result}
	case *bridgev1.AttachStart_Resume:
		result := &cliv1.SessionServiceResumeResponse{}
		err = a.svc.cfg.Codec.FromJSONAs(answer, result, translate.Exact)
		started.Result = &bridgev1.AttachStarted_ResumeResult{ResumeResult: result}
	}
	if err != nil {
		a.svc.cfg.Log.Warn("result does not match its message type", "session_id", a.s.ID(), "error", err)
	}
}
