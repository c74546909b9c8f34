package session

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

// Do makes a call about the session, loading it if need be.
func (s *Session) Do(ctx context.Context, method string, params jsonobj.Object, opts ...rpcconn.CallOption) (json.RawMessage, journal.Position, error) {
	var result json.RawMessage
	var at journal.Position
	err := s.retried(ctx, func(rt Runtime) (err error) {
		result, at, err = s.call(ctx, rt, method, params, opts...)
		return err
	})
	if err == nil && changesQueue(method) {
		s.prompts.Edit()
	}
	return result, at, err
}

// changesQueue reports whether a method changes what the CLI has queued: messages may be gone
// then, or have other words.
func changesQueue(method string) bool {
	switch method {
	case "session.queue.clear", "session.queue.duplicateAt", "session.queue.insertAt", "session.queue.moveItem",
		"session.queue.removeAt", "session.queue.removeMostRecent", "session.queue.updateText", "session.queue.withdrawMessage":
		return true
	}
	return false
}
