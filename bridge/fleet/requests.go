package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// subject is what a request of the CLI says about its addressee.
type subject struct {
	SessionID string `json:"sessionId"`
	// PolicySessionID is set instead in requests about an installation: the session whose rules apply to it.
	PolicySessionID string `json:"policySessionId"`
	RequestID       string `json:"requestId"`
}

// modelRequest reports whether a request of the CLI belongs to a request to a model.
func modelRequest(method string) bool { return strings.HasPrefix(method, "llmInference.") }

// hostCallback reports whether a call of the CLI is about an AHP host.
func hostCallback(method string) bool { return strings.HasPrefix(method, "host.") }

// lane returns the lane of a request: the parts of one request to a model stay in order.
func lane(r *rpcconn.Request) string {
	if !modelRequest(r.Method) {
		return ""
	}
	var about subject
	_ = json.Unmarshal(r.Params, &about) // one without an id is refused later
	return about.RequestID
}

// request takes a request of the CLI. It runs on a worker and waits for the answer.
func (rt *Runtime) request(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	if host := rt.fleet.cfg.Host; host != nil && hostCallback(r.Method) {
		return host.Request(ctx, r.Method, r.Params)
	}
	var about subject
	_ = json.Unmarshal(r.Params, &about) // params that are no object name no session
	about.SessionID = cmp.Or(about.SessionID, about.PolicySessionID)
	if about.SessionID == "" && !modelRequest(r.Method) {
		return rt.askAll(ctx, r)
	}
	s := rt.addressee(r.Method, about)
	id := rt.id + "-" + r.ID
	switch {
	case s == nil:
		return nil, unhandled(r.Method)
	case r.Method == callback.ModelRequestStart:
		return s.Models().Start(ctx, rt, id, r.Params)
	case r.Method == callback.ModelRequestChunk:
		return s.Models().Chunk(ctx, id, r.Params)
	}
	return s.Callbacks().AskMethod(ctx, id, r.Method, r.Params)
}

func unhandled(method string) error {
	return &rpcconn.Error{Code: rpcconn.CodeMethodNotFound, Message: "no participant handles " + method}
}

// addressee returns the session that a request is for; nil if there is none.
func (rt *Runtime) addressee(method string, about subject) *session.Session {
	if s := rt.session([]byte(about.SessionID)); s != nil {
		return s
	}
	switch {
	case about.SessionID != "":
		return nil
	case method == callback.ModelRequestChunk: // does not name its session
		return rt.first(func(s *session.Session) bool { return s.Models().Has(about.RequestID) })
	case method == callback.ModelRequestStart: // about no session, such as which models there are
		return rt.first(func(s *session.Session) bool { return s.Participants().Handles(method) })
	}
	return nil
}

// first returns the loaded session for which is returns true; of several the one with the lowest id.
func (rt *Runtime) first(is func(*session.Session) bool) (found *session.Session) {
	for _, s := range rt.loaded() {
		if is(s) && (found == nil || s.ID() < found.ID()) {
			found = s
		}
	}
	return found
}

// askAll serves a request that names no session: it asks the sessions whose callers handle it one after the other,
// until one answers.
func (rt *Runtime) askAll(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	err := unhandled(r.Method)
	for _, s := range rt.loaded() {
		if !s.Participants().Handles(r.Method) {
			continue
		}
		var result json.RawMessage
		if result, err = s.Callbacks().AskMethod(ctx, rt.id+"-"+r.ID, r.Method, r.Params); err == nil {
			return result, nil
		}
		if !errors.As(err, new(*rpcconn.Error)) { // the CLI does not wait for the answer any more
			return nil, err
		}
	}
	return nil, err
}
