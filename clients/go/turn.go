package copilot

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/pause"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Turn is one prompt and what the agent makes of it.
type Turn struct {
	ctx     context.Context
	session *Session
	opts    *sendOptions

	once    sync.Once
	cursor  *cursor
	started *bridgev1.RunStarted
	outcome *bridgev1.TurnOutcome
	err     error
}

// Run prepares to send a prompt and to follow its turn:
//
//	turn := s.Run(ctx, "Tidy up the README.")
//	for ev, err := range turn.Events() { … }
//	out, err := turn.Outcome()
//
// The prompt is sent when one of the two is called. ctx bounds the reading of the turn;
// when it ends, the turn continues.
func (s *Session) Run(ctx context.Context, text string, opts ...SendOption) *Turn {
	return &Turn{ctx: ctx, session: s, opts: newSendOptions(text, opts)}
}

// Events says the prompt and yields the session's events until the turn has ended. It
// can be used once; breaking off the loop ends the reading, not the turn. An error is the
// last element. A stream that breaks is opened again after the last event.
func (t *Turn) Events() iter.Seq2[*bridgev1.Event, error] {
	return func(yield func(*bridgev1.Event, error) bool) {
		used := true
		t.once.Do(func() {
			used = false
			t.follow(yield)
		})
		if used {
			yield(nil, errTurnUsed)
		}
	}
}

// Deltas is [Turn.Events] with the text of the session's own agent only, as it is generated.
// Where the model does not stream, a text is a whole message. Events that are missing are no
// error here. An error is the last element.
func (t *Turn) Deltas() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		streamed := make(map[string]bool) // messages, by id
		for ev, err := range t.Events() {
			var gap *GapError
			switch {
			case errors.As(err, &gap):
				continue
			case err != nil:
				yield("", err)
				return
			}
			if text := ownText(ev, streamed); text != "" && !yield(text, nil) {
				return
			}
		}
	}
}

// WriteText writes the texts of [Turn.Deltas] to w, each as it comes, and returns the turn's outcome. An error of w ends
// the reading, not the turn.
func (t *Turn) WriteText(w io.Writer) (*Outcome, error) {
	for text, err := range t.Deltas() {
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		if err != nil {
			return nil, err
		}
	}
	return t.Outcome()
}

// ownText returns the text that an event adds to the answer of the session's own agent.
func ownText(ev *bridgev1.Event, streamed map[string]bool) string {
	if ev.GetEvent().GetAgentId() != "" {
		return ""
	}
	switch data := ev.GetEvent().GetData().(type) {
	case *cliv1.SessionEvent_AssistantMessageDelta:
		streamed[data.AssistantMessageDelta.GetMessageId()] = true
		return data.AssistantMessageDelta.GetDeltaContent()
	case *cliv1.SessionEvent_AssistantMessage:
		if !streamed[data.AssistantMessage.GetMessageId()] {
			return data.AssistantMessage.GetContent()
		}
	}
	return ""
}

var (
	errTurnUsed  = errors.New("copilot: the turn's events have been read")
	errTurnCut   = errors.New("copilot: the reading of the turn was broken off before its end")
	errNoOutcome = unavailable("the server ended the turn's stream without an outcome")
)

// MessageID is the id of the message that began the turn, which is that of its user.message event; empty before the
// server has accepted the prompt. It is for the loop over the turn, and for after it: events of an earlier turn can
// come before those of this one.
func (t *Turn) MessageID() string { return t.started.GetMessageId() }

// Outcome is how the turn ended. It reads what Events has not: called first, it says the
// prompt and waits for the end.
func (t *Turn) Outcome() (*Outcome, error) {
	t.once.Do(func() { t.follow(func(*bridgev1.Event, error) bool { return true }) })
	if t.err != nil {
		return nil, t.err
	}
	return &Outcome{MessageID: t.started.GetMessageId(), Proto: t.outcome}, nil
}

// follow reads the turn over one stream after another. The request id makes the server
// say the prompt once, and stream the same turn again.
func (t *Turn) follow(yield func(*bridgev1.Event, error) bool) {
	t.cursor = &cursor{session: t.session, opts: &eventsOptions{}}
	t.session.injectTrace(t.ctx, t.opts.prompt)
	if _, t.err = t.opts.inline(true); t.err != nil {
		yield(nil, t.err)
		return
	}
	b := newBackoff(t.session.client.reconnect)
	for {
		over, err := t.read(b, yield)
		if over {
			return
		}
		e := asError(err)
		if e == nil || !e.isBroken() || t.ctx.Err() != nil || !next(t.ctx, b, e) {
			t.err = err
			if t.ctx.Err() != nil {
				t.err = context.Cause(t.ctx)
			}
			yield(nil, t.err)
			return
		}
	}
}

// read reads one stream. It returns true when the turn, or the loop, has ended.
func (t *Turn) read(b *pause.Backoff, yield func(*bridgev1.Event, error) bool) (bool, error) {
	ctx, cancel := context.WithCancelCause(t.ctx)
	defer cancel(nil)
	stream, err := t.session.client.sessions.Run(ctx, &bridgev1.RunRequest{
		RequestId: t.opts.requestID,
		Session:   &bridgev1.RunRequest_SessionId{SessionId: t.session.id},
		Prompt:    t.opts.prompt,
		Filter:    t.opts.filter,
		Options:   t.opts.stream,
	})
	if err != nil {
		return false, FromError(err)
	}
	next := recvWithin(stream, silenceFor(t.opts.stream), cancel)
	for {
		frame, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return false, errNoOutcome
		case err != nil && ctx.Err() != nil:
			return false, FromError(context.Cause(ctx))
		case err != nil:
			return false, FromError(err)
		}
		b.Reset()
		if over, err := t.take(frame, yield); over || err != nil {
			return over, err
		}
	}
}

func (t *Turn) take(frame *bridgev1.RunResponse, yield func(*bridgev1.Event, error) bool) (bool, error) {
	switch f := frame.GetFrame().(type) {
	case *bridgev1.RunResponse_Progress:
		t.session.client.log.Info("waiting for the server", "session_id", t.session.id, "detail", f.Progress.GetDetail())
	case *bridgev1.RunResponse_Started:
		t.started = f.Started
		t.session.pos.Note(f.Started.GetPosition())
	case *bridgev1.RunResponse_Outcome:
		t.outcome = f.Outcome
		t.session.pos.Note(f.Outcome.GetEndPosition())
		return true, nil
	case *bridgev1.RunResponse_Stream:
		if _, again := t.cursor.take(f.Stream); again != nil {
			return false, again
		}
		if gap := f.Stream.GetGap(); gap != nil && !t.cursor.opts.tellGap(gap, yield) {
			t.err = errTurnCut
			return true, nil
		}
		for _, ev := range f.Stream.GetEvents().GetEvents() {
			if !yield(ev, nil) {
				t.err = errTurnCut
				return true, nil
			}
		}
	}
	return false, nil
}
