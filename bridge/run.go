package bridge

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/frame"
)

// Run says something and streams until the turn has ended.
func (b *Bridge) Run(ctx context.Context, r *bridgev1.RunRequest, sink frame.Sink) error {
	o, err := newOptions(r.GetOptions())
	if err != nil {
		return err
	}
	// What is wrong with the prompt is found before a session is made for it.
	m, err := b.prompt(r.GetPrompt(), "prompt")
	if err != nil {
		return err
	}
	s, end, err := b.runSession(ctx, r)
	if err != nil {
		return err
	}
	defer end()
	st := b.newStream(o, sink)
	defer st.close()
	f, err := st.follow(s, cursor{tail: r.GetCreate() == nil}, r.GetFilter(), "")
	if err != nil {
		return err
	}
	f.callbacks = true
	sent, err := s.Send(ctx, m)
	if err != nil {
		return err
	}
	started := &bridgev1.RunStarted{SessionId: s.ID(), MessageId: sent.MessageID, Position: session.Proto(sent.At)}
	if err := sink(frame.Frame{Message: &bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Started{Started: started}}}); err != nil {
		return err
	}
	over, outcome := sent.Waiter.Done()
	st.done, st.end = over, func() journal.Position { return outcome().End }
	if err := st.run(ctx); err != nil {
		return err
	}
	select {
	case <-over:
		return sink(frame.Frame{Message: &bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Outcome{Outcome: outcome().Proto()}}})
	default: // the server stops
		return nil
	}
}

// runSession returns the session of a Run, and what to do with it afterwards.
func (b *Bridge) runSession(ctx context.Context, r *bridgev1.RunRequest) (s *session.Session, end func(), err error) {
	if r.GetCreate() == nil {
		s, err := b.open(r.GetSessionId())
		return s, func() {}, err
	}
	s, _, err = b.create(ctx, r.GetCreate(), "create.", nil)
	if err != nil {
		return nil, nil, within(err, "")
	}
	if r.GetCreate().GetLifetime() == bridgev1.Lifetime_LIFETIME_KEEP {
		return s, func() {}, nil
	}
	return s, func() {
		b.Go(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, closeTimeout)
			defer cancel()
			if _, err := s.Disconnect(ctx, false); err != nil {
				b.log.Warn("session of a run not disconnected", "session_id", s.ID(), "error", err)
			}
		})
	}, nil
}
