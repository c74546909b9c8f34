package session

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

// SetModel switches the model and remembers it for the next load.
func (s *Session) SetModel(ctx context.Context, params jsonobj.Object) (json.RawMessage, journal.Position, error) {
	if err := lock(ctx, s.gate); err != nil {
		return nil, journal.Position{}, err
	}
	defer unlock(s.gate)
	rt, err := s.loaded(ctx)
	if err != nil {
		return nil, journal.Position{}, err
	}
	result, at, err := s.call(ctx, rt, "session.model.switchTo", params)
	if err != nil {
		return nil, at, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config.Object = s.config.Object.Clone()
	s.config.Object.Set("model", params.Get("modelId"))
	s.config.Object.Set("reasoningEffort", params.Get("reasoningEffort"))
	s.config.Object.Set("modelCapabilities", params.Get("modelCapabilities"))
	s.host.Keep(s)
	return result, at, nil
}

// SetProvider changes the provider's members, and the model if one is named.
func (s *Session) SetProvider(ctx context.Context, change func(provider jsonobj.Object) (jsonobj.Object, error), model string) error {
	if err := lock(ctx, s.gate); err != nil {
		return err
	}
	defer unlock(s.gate)
	if err := s.turns.AwaitFailed(ctx); err != nil {
		return err
	}
	if s.turns.Running() {
		return fault.New(fault.SessionBusy, "a turn is running")
	}
	s.mu.Lock()
	before, ref := s.config.Object, s.config.ProviderRef
	provider, err := jsonobj.Parse(before.Get("provider"))
	if err != nil {
		provider = nil
	}
	s.mu.Unlock()
	if provider, err = change(provider.Clone()); err != nil {
		return err
	}
	rt, err := s.loaded(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.config.Object = before.Clone()
	s.config.Object.Set("provider", provider.JSON())
	s.config.ProviderRef = "" // it is the session's own from now on
	if model != "" {
		s.config.Object.SetString("model", model)
	}
	s.host.Keep(s)
	s.mu.Unlock()
	if err := s.participants.WarmResume(ctx, rt, nil); err != nil {
		s.mu.Lock()
		s.config.Object, s.config.ProviderRef = before, ref
		s.mu.Unlock()
		return err
	}
	return nil
}

// ProviderRef is the provider of the bridge's own that the session has, "" if it has one of
// its own.
func (s *Session) ProviderRef() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config.ProviderRef
}

// SetCredentials gives the session secrets of its provider, or a GitHub token, in the
// place of those it has.
func (s *Session) SetCredentials(ctx context.Context, secrets jsonobj.Object, token string) error {
	if err := lock(ctx, s.gate); err != nil {
		return err
	}
	defer unlock(s.gate)
	s.mu.Lock()
	provider, err := jsonobj.Parse(s.config.Object.Get("provider"))
	if len(secrets) > 0 && err != nil {
		s.mu.Unlock()
		return fault.New(fault.InvalidField, "the session has no provider").WithField("provider")
	}
	before := s.config.Object
	s.config.Object = before.Clone()
	if len(secrets) > 0 {
		s.config.Object.Set("provider", provider.Merge(secrets).JSON())
	}
	missing := s.config.Missing
	if token != "" {
		s.config.Object.SetString(config.GitHubToken, token)
		s.config.Regained(config.GitHubToken)
	}
	if len(secrets) > 0 {
		s.config.Regained("provider")
	}
	s.host.Keep(s)
	loaded, rt := s.state == Loaded, s.runtime
	s.mu.Unlock()
	if loaded {
		err = s.participants.WarmResume(ctx, rt, nil)
	} else {
		_, err = s.loaded(ctx)
	}
	if err != nil && fault.ReasonOf(err) != fault.CredentialsNeeded { // some may still be missing
		// What the CLI refused must not be in the way of every later load.
		s.mu.Lock()
		s.config.Object, s.config.Missing = before, missing
		s.mu.Unlock()
	}
	return err
}
