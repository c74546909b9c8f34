package session

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// What callers set in a session by calls of the CLI's own, and the CLI forgets when no
// process has the session open, is remembered here and told again after each load.

// maxSettings bounds the settings of a session.
const maxSettings = 512

// setting is a call that set something.
type setting struct {
	key    string
	method string
	params jsonobj.Object
}

// Keep says which earlier settings a new one replaces.
type Keep struct {
	// Key names what is set; a new setting takes the place of an older one with its key.
	// "" keeps all.
	Key string
	// Merge adds the members of the new one to those of the older.
	Merge bool
}

// Apply makes a call that sets something, and remembers it for the next load.
func (s *Session) Apply(ctx context.Context, method string, params jsonobj.Object, keep Keep) (json.RawMessage, journal.Position, error) {
	s.mu.Lock()
	full := len(s.settings) >= maxSettings && !slices.ContainsFunc(s.settings, func(o setting) bool { return keep.Key != "" && o.key == keep.Key })
	s.mu.Unlock()
	if full {
		return nil, journal.Position{}, fault.New(fault.LimitExceeded, "the session has %d settings to remember", maxSettings).With("limit", "session settings")
	}
	given := s.regainedSetting(method)
	result, at, err := s.Do(ctx, method, params.Clone())
	if err != nil {
		s.lackAgain(given)
	}
	if err == nil && Refused(result, method) == nil {
		s.remember(setting{keep.Key, method, params}, keep.Merge)
		s.host.Keep(s)
	}
	return result, at, err
}

// regainedSetting takes it that the secrets which a setting of an earlier life of the bridge
// carried are in the call that is about to be made: the session can be loaded for it if
// nothing else is missing. It returns them.
func (s *Session) regainedSetting(method string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.missing
	s.regained(method)
	return slices.DeleteFunc(slices.Clone(before), func(path string) bool { return slices.Contains(s.missing, path) })
}

// ofSetting reports whether what is missing is of a setting, not of the configuration: its
// path begins with a method.
func ofSetting(path string) bool { return strings.HasPrefix(path, "session.") }

// lackAgain puts back what regainedSetting returned.
func (s *Session) lackAgain(paths []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != Disconnected {
		s.missing = append(slices.Clone(s.missing), paths...)
	}
}

// remember puts a setting at the end.
func (s *Session) remember(one setting, merge bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rememberLocked(one, merge)
}

// rememberLocked is remember for callers that hold mu.
func (s *Session) rememberLocked(one setting, merge bool) {
	i := slices.IndexFunc(s.settings, func(o setting) bool { return one.key != "" && o.key == one.key })
	if i >= 0 && merge {
		one.params = s.settings[i].params.Merge(one.params)
	}
	rest := slices.Clone(s.settings)
	if i >= 0 {
		rest = slices.Delete(rest, i, i+1)
	}
	s.settings = append(rest, one)
}

// restore tells a CLI that has just loaded the session what was set before. A setting that
// it no longer takes, such as that of a server which is gone, is left out.
func (s *Session) restore(ctx context.Context, rt Runtime) error {
	s.mu.Lock()
	settings := s.settings
	s.mu.Unlock()
	for _, one := range settings {
		_, _, err := s.call(ctx, rt, one.method, one.params.Clone())
		switch {
		case err == nil:
		case fault.ReasonOf(err) == fault.RuntimeLost || ctx.Err() != nil:
			return err
		default:
			s.host.Logger().Error("setting not restored", "session_id", s.id, "method", one.method, "error", err)
		}
	}
	return nil
}

// Opened returns what the CLI answered when it was last told of the session.
func (s *Session) Opened() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// OpenedAt is the journal's last position when the CLI gave the answer that Opened has.
func (s *Session) OpenedAt() journal.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openedAt
}

// SetTools replaces the session's own tools.
func (s *Session) SetTools(ctx context.Context, tools []Tool) (journal.Position, error) {
	s.mu.Lock()
	before := s.tools
	s.tools = nil
	err := s.checkClash(tools, nil, "tools")
	if err != nil {
		s.tools = before
		s.mu.Unlock()
		return journal.Position{}, err
	}
	s.tools = tools
	s.mu.Unlock()
	if err := s.Sync(ctx); err != nil {
		s.mu.Lock()
		s.tools = before
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
	if len(s.registered) >= maxInterests {
		s.mu.Unlock()
		return "", fault.New(fault.LimitExceeded, "the session has %d registered interests", maxInterests).With("limit", "interests")
	}
	if s.registered == nil {
		s.registered = map[string]string{}
	}
	handle = "i-" + rand.Text()
	s.registered[handle] = eventType
	s.mu.Unlock()
	if err = s.Sync(ctx); err != nil {
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
	_, ok := s.registered[handle]
	delete(s.registered, handle)
	s.host.Keep(s)
	return ok
}

// interesting lists the event types that somebody wants and the CLI sends on request only.
// The caller holds mu.
func (s *Session) interesting(kinds []string) []string {
	types := slices.DeleteFunc(slices.Clone(kinds), func(t string) bool { return !s.wantsMethod(t) })
	for _, t := range s.registered {
		if !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return slices.DeleteFunc(types, func(t string) bool { return s.interests[t] })
}
