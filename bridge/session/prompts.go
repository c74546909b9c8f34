package session

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
)

// newPrompts returns the queue of the session's prompts.
func (s *Session) newPrompts(box *outbox.Box) *prompts.Queue {
	cfg := prompts.Config{
		Session: s.id, Box: box, Journal: s.journal,
		Update: func(f func(prompts.Tx)) {
			s.mu.Lock()
			defer s.mu.Unlock()
			f(locked{s})
		},
		Outcome: s.OutcomeOf, HasHeaders: s.hasHeaders, Classify: Classify,
		In: func(ctx context.Context, f func(prompts.Runtime) error) error {
			return s.retried(ctx, func(rt Runtime) error { return f(carrier{s, rt}) })
		},
	}
	if s.host != nil {
		cfg.Go = s.host.Go
		cfg.Logger = func() *slog.Logger { return s.host.Logger() }
	}
	return prompts.New(cfg)
}

// locked is the session while the goroutine that uses it holds mu. It is the queue's prompts.Tx.
type locked struct{ s *Session }

func (l locked) Turn() *turn.Machine            { return l.s.turn }
func (l locked) CarryOut(effects []turn.Effect) { l.s.carryOut(effects) }
func (l locked) EndTurn(out turn.Outcome)       { l.s.turnOver(out) }
func (l locked) Loaded() bool                   { return l.s.state == Loaded }

func (l locked) Post(note any, at journal.Position) journal.Position {
	return l.s.journal.Post(note, at)
}

func (l locked) MarkTurnEnd(at journal.Position) {
	l.s.intake.Marks.TurnEnd = at
	if l.s.host != nil {
		l.s.host.Keep(l.s)
	}
}

// carrier is the session in one runtime. It is the queue's prompts.Runtime.
type carrier struct {
	s  *Session
	rt Runtime
}

func (c carrier) Ended() <-chan struct{}                { return c.rt.Ended() }
func (c carrier) TakeHeaders(ctx context.Context) error { return c.s.takeHeaders(ctx, c.rt) }
func (c carrier) RestoreHeaders(ctx context.Context)    { c.s.restoreHeaders(ctx, c.rt) }
func (c carrier) RestoreAfter(w *turn.Waiter)           { c.s.restoreAfter(w, c.rt) }

func (c carrier) Give(ctx context.Context, method string, params jsonobj.Object, w *turn.Waiter) (json.RawMessage, error) {
	sent, err := c.s.give(ctx, c.rt, method, params, &Waiter{c.s, w})
	return sent.Result, err
}

// outboxForm is a prompt's form in the outbox.
func (m Message) outboxForm(params jsonobj.Object) outbox.Prompt {
	return outbox.Prompt{
		Method: m.Method, Params: params.JSON(), Override: m.Override, Immediate: m.Immediate,
		Request: m.Request, AskedAt: time.Now(),
	}
}

// tellAgain gives readers the notes of an earlier life, in order, with the one about the turn
// that it cut off. The caller holds mu.
func (s *Session) tellAgain() {
	cut := s.cutOff()
	s.prompts.Renumber(func(note any, at journal.Position) journal.Position {
		if cut != nil && !before(at, s.intake.Marks.InterruptedAt) {
			cut()
			cut = nil
		}
		return s.journal.Post(note, at)
	})
	if cut != nil {
		cut()
	}
}

// before reports whether a position is known and before another, of which zero is the end.
func before(a, b journal.Position) bool {
	return b == journal.Position{} || a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.Seq < b.Seq
}

// Repeated is what is known of a message whose request comes again.
type Repeated struct {
	// ResentID is its id since it was given to the CLI again; empty if it was not.
	ResentID string
	// Waiter waits for its turn, if that was begun in an earlier life of the bridge and had
	// not ended.
	Waiter *Waiter
}

// Repeat tells what has become of a message that the CLI accepted. It fails with SEND_IN_DOUBT
// if the message is not part of the conversation. Where only the history can tell, the session
// is loaded.
func (s *Session) Repeat(ctx context.Context, id string) (Repeated, error) {
	if id == "" {
		return Repeated{}, nil
	}
	box := s.prompts.Box()
	if s.State() == Unloaded && box.Pending(id) {
		if _, err := s.Loaded(ctx); err != nil {
			return Repeated{}, fault.Wrap(err, fault.SendInDoubt, "the runtime ended, and the session cannot be loaded to see whether it took the message up").
				With("message_id", id)
		}
	}
	if why, ok := box.LostBecause(id); ok {
		return Repeated{}, prompts.LostError([]string{id}, why)
	}
	if err := s.Doubted(id); err != nil {
		return Repeated{}, err
	}
	out := Repeated{ResentID: box.MovedTo(id)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.prompts.Restored(locked{s}, id); w != nil {
		out.Waiter = &Waiter{s, w}
	}
	return out, nil
}
