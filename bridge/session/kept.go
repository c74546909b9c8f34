package session

import (
	"context"
	"slices"
)

// forgotten are the methods whose last call the CLI forgets when it unloads a session
// although it is part of the session's configuration: it is made again with each load.
var forgotten = []string{"session.permissions.setApproveAll"}

// keptCall is one such call.
type keptCall struct {
	method string
	params Object
}

// keepCall remembers a call that was made, if it is one of those. The caller holds mu.
func (s *Session) keepCall(method string, params Object) {
	if !slices.Contains(forgotten, method) {
		return
	}
	s.keptCalls = slices.DeleteFunc(s.keptCalls, func(k keptCall) bool { return k.method == method })
	s.keptCalls = append(s.keptCalls, keptCall{method, params.Clone()})
}

// repeatKept makes the calls again, for a session that the CLI has just loaded.
func (s *Session) repeatKept(ctx context.Context, rt Runtime) error {
	s.mu.Lock()
	calls := slices.Clone(s.keptCalls)
	s.mu.Unlock()
	for _, k := range calls {
		if _, _, err := s.call(ctx, rt, k.method, k.params.Clone()); err != nil {
			return err
		}
	}
	return nil
}
