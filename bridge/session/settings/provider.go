package settings

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

// SetModel switches the model and remembers it for the next load.
func (s *Settings) SetModel(ctx context.Context, params jsonobj.Object) (
	result json.RawMessage, at journal.Position, err error) {
	err = s.cfg.Exclusive(ctx, func() error {
		rt, err := s.cfg.Load(ctx)
		if err != nil {
			return err
		}
		if result, at, err = s.cfg.Call(ctx, rt, "session.model.switchTo", params); err != nil {
			return err
		}
		s.cfg.Lock.Lock()
		defer s.cfg.Lock.Unlock()
		s.State.SetModel(params)
		s.cfg.Tx.MarkDirty()
		return nil
	})
	return result, at, err
}

// ProviderRef returns the name of the configured provider that the session uses, or "" for a provider of the
// caller.
func (s *Settings) ProviderRef() string {
	s.cfg.Lock.Lock()
	defer s.cfg.Lock.Unlock()
	return s.State.ProviderRef
}

// HasHeaders reports whether the session's provider has headers.
func (s *Settings) HasHeaders() bool {
	s.cfg.Lock.Lock()
	defer s.cfg.Lock.Unlock()
	return s.State.HasHeaders()
}

// SetProvider changes the provider's members, and the model if one is named. It fails with
// SESSION_BUSY while a turn runs.
func (s *Settings) SetProvider(
	ctx context.Context, change func(provider jsonobj.Object) (jsonobj.Object, error), model string,
) error {
	return s.cfg.Exclusive(ctx, func() error {
		if err := s.cfg.Turns.AwaitFailed(ctx); err != nil {
			return err
		}
		if s.cfg.Turns.Running() {
			return fault.New(fault.SessionBusy, "a turn is running")
		}
		s.cfg.Lock.Lock()
		before, ref := s.State.Object, s.State.ProviderRef
		s.cfg.Lock.Unlock()
		provider, err := jsonobj.Parse(before.Get("provider"))
		if err != nil {
			provider = nil
		}
		if provider, err = change(provider.Clone()); err != nil {
			return err
		}
		rt, err := s.cfg.Load(ctx)
		if err != nil {
			return err
		}
		s.replaceProvider(before, provider, model)
		if err := s.cfg.Participants.WarmResume(ctx, rt, nil); err != nil {
			s.cfg.Lock.Lock()
			defer s.cfg.Lock.Unlock()
			s.State.Object, s.State.ProviderRef = before, ref
			return err
		}
		return nil
	})
}

// replaceProvider takes over a provider, which is the session's own from now on.
func (s *Settings) replaceProvider(before, provider jsonobj.Object, model string) {
	s.cfg.Lock.Lock()
	defer s.cfg.Lock.Unlock()
	s.State.Object = before.Clone()
	s.State.Object.Set("provider", provider.JSON())
	s.State.ProviderRef = ""
	if model != "" {
		s.State.Object.SetString("model", model)
	}
	s.cfg.Tx.MarkDirty()
}

// SetCredentials gives the session secrets of its provider, or a GitHub token, in the place of those
// it has.
func (s *Settings) SetCredentials(ctx context.Context, secrets jsonobj.Object, token string) error {
	return s.cfg.Exclusive(ctx, func() error {
		loaded, undo, err := s.giveCredentials(secrets, token)
		if err != nil {
			return err
		}
		rt, err := s.cfg.Load(ctx)
		if err == nil && loaded {
			err = s.cfg.Participants.WarmResume(ctx, rt, nil)
		}
		if err != nil && fault.ReasonOf(err) != fault.CredentialsNeeded { // some may still be missing
			// A configuration that the CLI rejects would make every later load fail.
			undo()
		}
		return err
	})
}

// giveCredentials takes over credentials, and reports whether a runtime had the session before.
func (s *Settings) giveCredentials(secrets jsonobj.Object, token string) (loaded bool, undo func(), err error) {
	s.cfg.Lock.Lock()
	defer s.cfg.Lock.Unlock()
	provider, err := jsonobj.Parse(s.State.Object.Get("provider"))
	if len(secrets) > 0 && err != nil {
		return false, nil, fault.New(fault.InvalidField, "the session has no provider").WithField("provider")
	}
	before, missing := s.State.Object, s.State.Missing
	s.State.Object = before.Clone()
	if len(secrets) > 0 {
		s.State.Object.Set("provider", provider.Merge(secrets).JSON())
	}
	if token != "" {
		s.State.Object.SetString(config.GitHubToken, token)
		s.State.Regained(config.GitHubToken)
	}
	if len(secrets) > 0 {
		s.State.Regained("provider")
	}
	s.cfg.Tx.MarkDirty()
	return s.cfg.Tx.Loaded(), func() {
		s.cfg.Lock.Lock()
		defer s.cfg.Lock.Unlock()
		s.State.Object, s.State.Missing = before, missing
	}, nil
}
