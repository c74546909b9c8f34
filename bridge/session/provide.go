package session

import (
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Need has the session's handlers provide what these callbacks ask for: the CLI asks from
// the moment it opens the session, and can do nothing with it without an answer.
func (s *Session) Need(methods ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needs = methods
}

// checkProviders returns PROVIDER_GONE when nobody is there to provide what the session needs.
func (s *Session) checkProviders() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.providers()
}

// providers is checkProviders with mu held.
func (s *Session) providers() error {
	for _, method := range s.needs {
		if !s.answers(method) {
			return fault.New(fault.ProviderGone, "nobody is there who handles %s, which session %q needs", method, s.id).
				With("session_id", s.id).With("method", method)
		}
	}
	return nil
}

// answers reports whether a method is answered by the session's own handlers, or by a participant
// who is connected. The caller holds mu.
func (s *Session) answers(method string) bool {
	return slices.Contains(s.config.Handling.Methods, method) || s.roster.Answers(method)
}

// Asking returns nil while the session's callbacks can be answered: also while it is being
// created, and if it needs answers for that, resumed.
func (s *Session) Asking() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == Creating || s.state != Deleted && len(s.needs) > 0 {
		return nil
	}
	return s.usable()
}

// Provides reports whether the session's handlers provide something for the CLI process.
func (s *Session) Provides() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.needs) > 0
}
