package session

import (
	"context"
	"crypto/rand"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

// What callers set in a session by calls of the CLI's own, and the CLI forgets when no
// process has the session open, is remembered here and told again after each load.

// Apply makes a call that sets something, and remembers it for the next load.
func (s *Session) Apply(ctx context.Context, method string, params jsonobj.Object, keep config.Keep) (json.RawMessage, journal.Position, error) {
	s.mu.Lock()
	full := s.config.Full(keep.Key)
	var given []string
	if !full {
		// The secrets that a setting of an earlier process carried are in this call: the
		// session can be loaded for it if nothing else is missing.
		given = s.config.Regained(method)
	}
	s.mu.Unlock()
	if full {
		return nil, journal.Position{}, fault.New(fault.LimitExceeded, "the session has %d settings to remember", config.MaxSettings).With("limit", "session settings")
	}
	result, at, err := s.Do(ctx, method, params.Clone())
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && s.state != Disconnected:
		s.config.Lack(given...)
	case err == nil && Refused(result, method) == nil:
		s.config.Remember(config.Setting{Key: keep.Key, Method: method, Params: params}, keep.Merge)
		s.host.Keep(s)
	}
	return result, at, err
}

// approved remembers settings that stand for an approval. The caller holds mu.
func (s *Session) approved(settings []config.Setting) {
	if s.config.Approve(settings) {
		s.host.Keep(s)
	}
}

// restore tells a CLI that has just loaded the session what was set before. A setting that
// it no longer takes, such as that of a server which is gone, is left out.
func (s *Session) restore(ctx context.Context, rt Runtime) error {
	s.mu.Lock()
	settings := s.config.Settings
	s.mu.Unlock()
	for _, one := range settings {
		_, _, err := s.call(ctx, rt, one.Method, one.Params.Clone())
		switch {
		case err == nil:
		case fault.ReasonOf(err) == fault.RuntimeLost || ctx.Err() != nil:
			return err
		default:
			s.host.Logger().Error("setting not restored", "session_id", s.id, "method", one.Method, "error", err)
		}
	}
	return nil
}

// SetTools replaces the session's own tools.
func (s *Session) SetTools(ctx context.Context, tools []config.Tool) (journal.Position, error) {
	s.mu.Lock()
	before := s.config.Tools
	if err := s.roster.CheckTools(tools, nil, nil, "tools"); err != nil {
		s.mu.Unlock()
		return journal.Position{}, err
	}
	s.config.Tools = tools
	s.mu.Unlock()
	if err := s.participants.Sync(ctx); err != nil {
		s.mu.Lock()
		s.config.Tools = before
		s.mu.Unlock()
		return journal.Position{}, err
	}
	s.host.Keep(s)
	return s.journal.Last(), nil
}

// maxInterests bounds the event types that callers register an interest in.
const maxInterests = 256

// Register asks for the events of a type that the CLI only sends on request. The CLI sees
// one interest, however many have it; the handle ends the caller's own.
func (s *Session) Register(ctx context.Context, eventType string) (handle string, err error) {
	s.mu.Lock()
	if len(s.config.Registered) >= maxInterests {
		s.mu.Unlock()
		return "", fault.New(fault.LimitExceeded, "the session has %d registered interests", maxInterests).With("limit", "interests")
	}
	if s.config.Registered == nil {
		s.config.Registered = map[string]string{}
	}
	handle = "i-" + rand.Text()
	s.config.Registered[handle] = eventType
	s.mu.Unlock()
	if err = s.participants.Sync(ctx); err != nil {
		s.Release(handle)
		return "", err
	}
	s.host.Keep(s)
	return handle, nil
}

// Release ends the interest of a handle, and reports whether there was one. The CLI goes on
// sending the events until the session is loaded anew: somebody else may read them.
func (s *Session) Release(handle string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.config.Registered[handle]
	delete(s.config.Registered, handle)
	s.host.Keep(s)
	return ok
}
