package session

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/callbacks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// newCallbacks returns the desk of the session's callbacks.
func (s *Session) newCallbacks(room callback.Room) *callbacks.Desk {
	return callbacks.New(callbacks.Config{
		Session: s.id, Tenant: s.tenant, Room: room, Journal: s.journal, Observer: s.observer, Audit: s.audit,
		Lock: func() callbacks.Tx {
			s.mu.Lock()
			return locked{s}
		},
		Unlock: s.mu.Unlock,
		Answer: s.answerCall,
		Usable: s.Asking,
		Approved: func(urls []config.Setting) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.approved(urls)
		},
		ModelTaken: func(id, participant string) { s.models.Taken(id, participant) },
		Go:         func(f func(context.Context)) { s.host.Go(f) },
		Logger:     func() *slog.Logger { return s.host.Logger() },
	})
}

func (l locked) Handlers(p *callback.Pending) (to []string, handled bool) {
	return l.s.roster.Handlers(p, &l.s.config)
}

// Covers reports whether the session itself handles a callback: a caller of Resolve may answer
// it then.
func (l locked) Covers(p *callback.Pending) bool {
	s := l.s
	if p.Kind.Method == callback.ToolRequested {
		return slices.ContainsFunc(s.config.Tools, func(t config.Tool) bool { return t.Name == p.Tool })
	}
	return p.For == roster.Everybody && !s.roster.OwnsCommand(p) && s.config.Handling.Handles(p)
}

func (l locked) HookOrder(hook string) (who []string, wanted bool) {
	return l.s.roster.HookOrder(hook, l.s.config.Handling), l.s.wantsMethod(callback.HooksInvoke)
}

func (l locked) TellAsked(to []string)  { l.s.roster.TellAsked(to) }
func (l locked) Reading() bool          { return l.s.intake.Holding() }
func (l locked) Timeout() time.Duration { return l.s.timeout }
func (l locked) Span() *observe.Span    { return l.s.turnSpan() }
func (l locked) Keep()                  { l.s.host.Keep(l.s) }

// answerCall makes the call that answers a callback. ended is of the runtime that it was made in.
func (s *Session) answerCall(ctx context.Context, method string, params jsonobj.Object) (
	result json.RawMessage, at journal.Position, ended <-chan struct{}, err error) {
	err = s.retried(ctx, func(rt Runtime) (err error) {
		ended = rt.Ended()
		result, at, err = s.call(ctx, rt, method, params, rpcconn.Priority())
		return err
	})
	return result, at, ended, err
}

// Callbacks returns the session's callbacks.
func (s *Session) Callbacks() *callbacks.Desk { return s.callbacks }
