package session

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

// SetModel switches the model and remembers it for the next load.
func (st *Settings) SetModel(ctx context.Context, params jsonobj.Object) (
	result json.RawMessage, at journal.Position, err error) {
	err = st.s.loader.alone(ctx, func(rt Runtime) (err error) {
		if result, at, err = st.s.call(ctx, rt, "session.model.switchTo", params); err != nil {
			return err
		}
		st.s.mu.Lock()
		defer st.s.mu.Unlock()
		st.State.SetModel(params)
		st.s.markDirty()
		return nil
	})
	return result, at, err
}

// ProviderRef returns the name of the configured provider that the session uses, or "" for a provider of the
// caller.
func (st *Settings) ProviderRef() string {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return st.State.ProviderRef
}

// hasHeaders reports whether the session's provider has headers.
func (st *Settings) hasHeaders() bool {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return st.State.HasHeaders()
}

// SetProvider changes the provider's members, and the model if one is named. It fails with
// SESSION_BUSY while a turn runs.
func (st *Settings) SetProvider(
	ctx context.Context, change func(provider jsonobj.Object) (jsonobj.Object, error), model string,
) error {
	return st.s.loader.exclusive(ctx, func() error {
		if err := st.s.turns.awaitFailed(ctx); err != nil {
			return err
		}
		if st.s.turns.Running() {
			return fault.New(fault.SessionBusy, "a turn is running")
		}
		st.s.mu.Lock()
		before := st.State.Object
		st.s.mu.Unlock()
		provider, err := jsonobj.Parse(before.Get("provider"))
		if err != nil {
			provider = nil
		}
		if provider, err = change(provider.Clone()); err != nil {
			return err
		}
		rt, err := st.s.loader.load(ctx)
		if err != nil {
			return err
		}
		return st.try(func() error {
			st.State.Object = before.Clone()
			st.State.Object.Set("provider", provider.JSON())
			st.State.ProviderRef = "" // it is the session's own from now on
			if model != "" {
				st.State.Object.SetString("model", model)
			}
			return nil
		}, func() error { return st.s.participants.warmResume(ctx, rt, nil) })
	})
}

// SetCredentials gives the session secrets of its provider, or a GitHub token, in the place of those
// it has.
func (st *Settings) SetCredentials(ctx context.Context, secrets jsonobj.Object, token string) error {
	return st.s.loader.exclusive(ctx, func() error {
		loaded := st.s.loader.State() == Loaded
		var lacking error // of more secrets than these
		err := st.try(func() error { return st.takeCredentials(secrets, token) }, func() error {
			rt, err := st.s.loader.load(ctx)
			if err == nil && loaded {
				err = st.s.participants.warmResume(ctx, rt, nil)
			}
			if fault.ReasonOf(err) == fault.CredentialsNeeded {
				lacking, err = err, nil
			}
			return err
		})
		return cmp.Or(err, lacking)
	})
}

// takeCredentials puts credentials into the configuration. The caller holds the lock.
func (st *Settings) takeCredentials(secrets jsonobj.Object, token string) error {
	provider, err := jsonobj.Parse(st.State.Object.Get("provider"))
	if len(secrets) > 0 && err != nil {
		return fault.New(fault.InvalidField, "the session has no provider").WithField("provider")
	}
	st.State.Object = st.State.Object.Clone()
	if len(secrets) > 0 {
		st.State.Object.Set("provider", provider.Merge(secrets).JSON())
		st.State.Regained("provider")
	}
	if token != "" {
		st.State.Object.SetString(config.GitHubToken, token)
		st.State.Regained(config.GitHubToken)
	}
	return nil
}
