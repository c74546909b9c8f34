package attach

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// opened is what became of a session that an Attach stream opens.
type opened struct {
	s      *session.Session
	joined session.Joined
	err    error
}

// openAsync is openSession in the background. Where the CLI asks the participant something before the session is open,
// which it then may wait for, it returns as soon as that happens; for a session that needs
// its participants, and for an exact start, as soon as this one is in place. The rest goes on in the background, and
// a.opening has its end.
func (a *Attachment) openAsync(ctx context.Context, j session.Joining) (*session.Session, session.Joined, error) {
	needed := a.start.GetExact() || a.svc.needsParticipants(ctx, a.start)
	early, end := make(chan opened, 1), make(chan opened, 1)
	var place opened // guarded by the session, which makes both calls
	proceed := func() {
		select {
		case early <- place:
		default: // it has returned, or is about to
		}
	}
	j.OnPlaced = func(s *session.Session, joined session.Joined) {
		place = opened{s: s, joined: joined}
		if needed {
			proceed()
		}
	}
	j.Asked = proceed
	ctx, cancel := context.WithCancelCause(ctx)
	a.work.Go(func() {
		defer cancel(nil)
		s, joined, err := a.openSession(ctx, j)
		end <- opened{s, joined, err}
	})
	select {
	case o := <-early:
		a.opening = end
		return o.s, o.joined, nil
	case o := <-end:
		return o.s, o.joined, o.err
	}
}

// needsParticipants reports whether the session of a start cannot be opened without its
// participants.
func (svc *Service) needsParticipants(ctx context.Context, start *bridgev1.AttachStart) bool {
	profile, id := start.GetCreate().GetRuntimeProfile(), start.GetJoinSessionId()
	if r := start.GetResume(); r != nil {
		profile, id = r.GetRuntimeProfile(), r.GetSessionId()
	}
	if profile.GetSessionFs() != nil || profile.GetModelInference() != nil {
		return true
	}
	s, err := svc.cfg.Sessions.Find(ctx, id)
	return err == nil && s.Settings().Provides()
}

// first is the first frame of the stream. Where the session is still being opened, the
// frame that says that it is there comes later, and when it fails the stream ends.
func (a *Attachment) first(ctx context.Context) *bridgev1.AttachResponse {
	if a.opening == nil {
		return &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Started{Started: a.started}}
	}
	a.spawn(func() {
		select {
		case o := <-a.opening:
			if o.err != nil {
				a.refused = a.refusal(o.err)
				a.end(a.refused)
				return
			}
			a.reply(ctx, &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Started{Started: a.startedAs(ctx, o.joined)}})
		case <-ctx.Done():
		}
	})
	return &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Opening{Opening: &bridgev1.AttachOpening{
		ParticipantId: a.p.ID, ParticipantToken: a.p.Token, SessionId: a.name,
	}}}
}

// runParts sends the parts of model responses to the CLI in their order. It reports only the first failure of
// each request.
func (a *Attachment) runParts(ctx context.Context) {
	failures := map[string]struct{}{}
	for {
		select {
		case r := <-a.parts:
			err := a.respond(ctx, r)
			id := r.GetRequestId()
			if _, told := failures[id]; err == nil || told {
				continue
			}
			if len(failures) >= maxFailures {
				clear(failures)
			}
			failures[id] = struct{}{}
			a.reply(ctx, a.failed(ctx, &bridgev1.AttachFailed{Subject: &bridgev1.AttachFailed_ModelRequestId{ModelRequestId: id}}, err))
		case <-ctx.Done():
			return
		}
	}
}

// maxFailures bounds the requests whose failure a stream remembers to have told.
const maxFailures = 1024

func (a *Attachment) respond(ctx context.Context, r *bridgev1.ModelResponse) error {
	return fields.Within(a.svc.cfg.Callbacks.Respond(ctx, a.s, r, a.p.ID), "model_response.")
}
