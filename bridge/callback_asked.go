package bridge

import (
	"encoding/json"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// about is what a request of the CLI says of whom it asks.
type about struct {
	SessionID string `json:"sessionId"`
	// What is asked about an installation names the session whose rules it is under.
	PolicySessionID string `json:"policySessionId"`
	RequestID       string `json:"requestId"`
}

// ofModel reports whether a request is about one to a model.
func ofModel(method string) bool { return strings.HasPrefix(method, "llmInference.") }

// arrive keeps the parts of one request to a model in order.
func arrive(r *rpcconn.Request) (lane string) {
	if !ofModel(r.Method) {
		return ""
	}
	var a about
	_ = json.Unmarshal(r.Params, &a) // one without an id is refused later
	return a.RequestID
}

// asked returns the session that a request is for; nil when it is nobody's.
func (bind *binding) asked(method string, a about) *session.Session {
	if s := bind.session([]byte(a.SessionID)); s != nil {
		return s
	}
	switch {
	case a.SessionID != "":
		return nil
	case method == callback.ModelRequestChunk: // does not say
		return bind.pick(func(s *session.Session) bool { return s.Models().Has(a.RequestID) })
	case method == callback.ModelRequestStart: // about none, such as which models there are
		return bind.pick(func(s *session.Session) bool { return s.Handles(method) })
	}
	return nil
}

// pick returns the runtime's session that fits, and of several the one with the lowest id.
func (bind *binding) pick(fits func(*session.Session) bool) (found *session.Session) {
	for _, s := range bind.loaded() {
		if fits(s) && (found == nil || s.ID() < found.ID()) {
			found = s
		}
	}
	return found
}
