package attach

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// parseStart checks what the participant brings.
func (a *Attachment) parseStart() (session.Joining, error) {
	start := a.start
	var err error
	if a.options, err = stream.ParseOptions(start.GetOptions()); err != nil {
		return session.Joining{}, fields.Within(err, "start.")
	}
	if _, err = stream.NewFilter(start.GetFilter(), "start.filter"); err != nil {
		return session.Joining{}, err
	}
	if err := fields.Known(start.GetStart(), "start.start"); err != nil {
		return session.Joining{}, err
	}
	if len(start.GetName()) > maxName {
		return session.Joining{}, fault.New(fault.InvalidField, "longer than %d characters", maxName).WithField("start.name")
	}
	grace, err := fields.Duration(start.GetGrace(), "start.grace", 0, maxGrace)
	if err != nil {
		return session.Joining{}, err
	}
	if start.GetGrace() == nil {
		grace = defaultGrace
	}
	tools, err := a.svc.cfg.Parser.Tools(start.GetTools(), "start.tools", start.GetExact())
	if err != nil {
		return session.Joining{}, err
	}
	j := session.Joining{Exact: start.GetExact()}
	j.Name, j.Token, j.Tools, j.Grace = start.GetName(), start.GetParticipantToken(), tools, grace
	if j.Commands, j.Own, err = a.svc.cfg.Parser.Declared(start, "start."); err != nil {
		return session.Joining{}, err
	}
	if h, err := request.Handling(start.GetHandlers(), "start.handlers"); err != nil {
		return session.Joining{}, err
	} else if h != nil {
		j.Handling = *h
	}
	return j, nil
}

// openSession creates, resumes or joins the session, as the start says.
func (a *Attachment) openSession(ctx context.Context, j session.Joining) (s *session.Session, joined session.Joined, err error) {
	a.begin = stream.Start{After: a.start.GetAfter(), Tail: a.start.GetStart() != bridgev1.StreamStart_STREAM_START_BEGINNING}
	switch how := a.start.GetSession().(type) {
	case *bridgev1.AttachStart_Create:
		a.begin = stream.Start{}
		return a.once(ctx, how.Create.GetRequestId(), j, func() (*session.Session, session.Joined, error) {
			return a.create(ctx, how.Create, &j)
		})
	case *bridgev1.AttachStart_Resume:
		if a.begin.After == nil && a.begin.Tail {
			// Events during the resume are new to the participant.
			if s, err := a.svc.cfg.Sessions.Open(ctx, how.Resume.GetSessionId()); err == nil {
				a.begin.After = session.Proto(s.Journal().Last())
			}
		}
		return a.once(ctx, how.Resume.GetRequestId(), j, func() (*session.Session, session.Joined, error) {
			return a.svc.cfg.Opener.Resume(ctx, how.Resume, "resume.", &j)
		})
	case *bridgev1.AttachStart_JoinSessionId:
		s, err := a.svc.cfg.Sessions.Open(ctx, how.JoinSessionId)
		if err != nil {
			return nil, joined, fields.Rename(err, "session_id", "join_session_id")
		}
		if err := tenancy.CheckHandlers(ctx, s, j.Handling.Methods, "handlers"); err != nil {
			return nil, joined, err
		}
		if !j.Exact {
			if err := s.Participants().CheckNames(ctx, j.Tools, j.Commands, ""); err != nil {
				return nil, joined, err
			}
		}
		joined, err = s.Participants().Join(ctx, j)
		return s, joined, err
	default:
		return nil, joined, fault.New(fault.InvalidField, "one of create, resume, join_session_id is required").WithField("session")
	}
}

// once opens the session, unless a start with the same request id did before: then the
// caller takes the place of the participant that came with it, whose token it may never
// have seen. Another caller of the tenant joins the session as another participant.
func (a *Attachment) once(ctx context.Context, id string, j session.Joining, open func() (*session.Session, session.Joined, error)) (s *session.Session, joined session.Joined, err error) {
	first := false
	started, err := idempotency.Run(ctx, a.svc.cfg.Operations, idempotency.Operation[*bridgev1.AttachStarted]{
		Scope: backend.OpAttach, ID: id, Request: a.start,
		Do: idempotency.Blocking(func(ctx context.Context) (*bridgev1.AttachStarted, error) {
			first = true
			if s, joined, err = open(); err != nil {
				return nil, err
			}
			return &bridgev1.AttachStarted{ParticipantToken: joined.Participant.Token, Session: &bridgev1.Session{SessionId: tenancy.NameOf(ctx, s)}}, nil
		}),
	})
	if err != nil || first {
		return s, joined, err
	}
	if s, err = a.svc.cfg.Sessions.Open(ctx, started.GetSession().GetSessionId()); err != nil {
		return nil, joined, err
	}
	j.Token, j.Reclaim = started.GetParticipantToken(), true
	joined, err = s.Participants().Join(ctx, j)
	if fault.ReasonOf(err) == fault.ParticipantNotFound { // its grace time is over
		j.Token, j.Reclaim = "", false
		joined, err = s.Participants().Join(ctx, j)
	}
	return s, joined, err
}
