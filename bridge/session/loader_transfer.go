package session

import (
	"context"
	"encoding/json"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/info"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/usage"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Exported is the part of a session's stored form that another installation can use. It has no secrets.
type Exported struct {
	config.Saved
	info.Info
	Lifetime int32         `json:"lifetime,omitempty"`
	Timeout  time.Duration `json:"timeout,omitempty"`
	Usage    usage.Usage   `json:"usage,omitempty"`
}

// Export returns the stored form of the session. defaults and providers are as for Save.
func (s *Session) Export(defaults jsonobj.Object, providers Providers) (out Exported, err error) {
	text, _ := s.Save(defaults, providers)
	if text == nil {
		return out, NotFound(s.id)
	}
	return out, json.Unmarshal(text, &out)
}

// How long AtRest waits for a session that has nothing to do as far as the bridge knows, and how often it tries. The CLI
// may still be finishing a turn whose end it has told, and a call that is about to end may have loaded the session again.
const (
	restPatience = 2 * time.Second
	restInterval = 50 * time.Millisecond
)

// AtRest unloads the session if a runtime has it, and calls f while no call can load it again. It returns
// SESSION_BUSY if work, a callback or a prompt of the session is not finished. f must not call the session's Loader.
func (s *Session) AtRest(ctx context.Context, f func() error) error {
	tick := time.NewTicker(restInterval)
	defer tick.Stop()
	for deadline := time.Now().Add(restPatience); ; {
		finishing, err := s.tryAtRest(ctx, f)
		if !finishing || time.Now().After(deadline) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return Classify(context.Cause(ctx), "")
		}
	}
}

// tryAtRest is AtRest without waiting. finishing reports that the session is busy, but has nothing to do as far as the
// bridge knows.
func (s *Session) tryAtRest(ctx context.Context, f func() error) (finishing bool, err error) {
	l := s.loader
	if _, err := l.Unload(ctx, 0); err != nil {
		return false, err
	}
	err = l.exclusive(ctx, func() error {
		l.s.mu.Lock()
		state, rests := l.state, l.atRest()
		finishing = state == Loaded && l.nothingToDo()
		l.s.mu.Unlock()
		switch {
		case state == Creating || state == Deleted:
			return NotFound(s.id)
		case !rests:
			return fault.New(fault.SessionBusy, "session %q has work, a callback or a prompt that is not finished: "+
				"wait for its end or abort it, and repeat the call", s.id).
				WithField("session_id").With("session_id", s.id)
		}
		return f()
	})
	return finishing, err
}

// atRest reports whether the session is in no runtime and has no turn, pending callback or prompt. The caller holds the
// session's lock.
func (l *Loader) atRest() bool {
	return (l.state == Unloaded || l.state == Disconnected) && l.nothingToDo()
}

// nothingToDo reports whether the session has no turn, pending callback or prompt. The caller holds the session's lock.
func (l *Loader) nothingToDo() bool {
	return !l.s.turns.machine.Busy() && l.s.callbacks.Registry().Len() == 0 && l.s.prompts.Outbox().Empty()
}

// Imported is a session of another installation.
type Imported struct {
	// Opening has the configuration, checked like that of a new session.
	Opening Opening
	// Missing are the paths of secrets that the configuration lacks.
	Missing []string
	Info    info.Info
	// HasHistory reports that the CLI has a history of the session.
	HasHistory bool
}

// Import makes a new session disconnected, with the state of in. Before that it calls place, which puts the session's
// files and events in their places. After an error the session is Deleted.
func (s *Session) Import(ctx context.Context, in Imported, place func() error) error {
	l := s.loader
	return l.exclusive(ctx, func() error {
		if l.State() != Creating {
			return fault.New(fault.SessionExists, "session %q exists", s.id).With("session_id", s.id)
		}
		_, err := l.open(in.Opening)
		if err == nil {
			err = place()
		}
		l.s.mu.Lock()
		defer l.s.mu.Unlock()
		if err != nil {
			l.state = Deleted
			return err
		}
		l.state = Disconnected
		l.lifetime = max(l.lifetime, bridgev1.Lifetime_LIFETIME_KEEP)
		l.s.settings.State.Missing = in.Missing
		s.ingester.Info = in.Info
		s.ingester.Known.HasHistory, s.ingester.Known.CompletedTurn = in.HasHistory, in.HasHistory
		s.ingester.Known.TurnEnd = s.journal.Last()
		return nil
	})
}
