package bridge

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// Satellite opens a connection beside the runtime's first, for a participant. The events
// that the CLI sends there are not even parsed: the session has them from the first.
func (bind *binding) Satellite(ctx context.Context, participant string, ask session.Asker) (session.Satellite, error) {
	rt := bind.runtime()
	if !rt.Multi() {
		return nil, fault.New(fault.FeatureDisabled,
			"canvases and extension identity need a runtime that takes several connections; the session's does not: create it with runtime_profile.multi_connection").
			WithField("canvases")
	}
	prefix := bind.id + "-" + participant + "-"
	return rt.Connect(ctx, rpcconn.Options{
		MaxDepth: rpcconn.CLIMaxDepth,
		Logger:   bind.b.log,
		Request: func(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
			return ask(ctx, prefix+r.ID, r.Method, r.Params)
		},
	})
}

// askAll serves a request that names no session: the sessions whose callers handle it are
// asked one after the other, until one answers.
func (bind *binding) askAll(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	bind.mu.RLock()
	var who []*session.Session
	for _, s := range bind.sessions {
		if s.Handles(r.Method) {
			who = append(who, s)
		}
	}
	bind.mu.RUnlock()
	err := error(&rpcconn.Error{Code: rpcconn.CodeMethodNotFound, Message: "nobody handles " + r.Method})
	for _, s := range who {
		var result json.RawMessage
		if result, err = s.Callbacks().AskMethod(ctx, bind.id+"-"+r.ID, r.Method, r.Params); err == nil {
			return result, nil
		}
		if !errors.As(err, new(*rpcconn.Error)) { // nobody waits for it any more
			return nil, err
		}
	}
	return nil, err
}
