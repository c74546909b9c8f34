package passthrough

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"

	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// answer answers a callback that an event asked, by the CLI's own method for it.
func (*Service) answer(ctx context.Context, s *session.Session, c *call) (json.RawMessage, error) {
	id := c.params.String("requestId")
	p, err := tenancy.Pending(ctx, s, id)
	if err != nil {
		return unanswered(ctx, s, c, err)
	}
	reply, err := replyOf(p, c)
	if err != nil {
		return unanswered(ctx, s, c, err)
	}
	if err := tenancy.CheckAnswer(ctx, s, p, reply, "result"); err != nil {
		return nil, err
	}
	at, err := async.Wait(ctx, func(done func(journal.Position, error)) {
		s.Callbacks().Resolve(ctx, id, callback.Responder{}, reply, done)
	})
	if err != nil {
		return unanswered(ctx, s, c, err)
	}
	return recorded(ctx, done, at, nil)
}

// unanswered returns the result of an answer to a callback that has ended, or never was. For the CLI that is no error,
// and its methods check the other parameters first: so the CLI is called, for exact callers. The call names a callback
// that the CLI does not have, so that it cannot precede another caller's answer on its way.
func unanswered(ctx context.Context, s *session.Session, c *call, err error) (json.RawMessage, error) {
	if r := fault.ReasonOf(err); !c.exact || r != fault.CallbackNotFound && r != fault.CallbackResolved {
		return nil, fields.Rename(err, "callback_id", "request_id")
	}
	params := c.params.Clone()
	if params.String("requestId") != "" {
		params.SetString("requestId", sessions.NewID())
	}
	result, at, err := s.Loader().Do(ctx, c.method, params)
	return recorded(ctx, result, at, err)
}

// replyOf checks an answer that came as parameters.
func replyOf(p *callback.Pending, c *call) (callback.Reply, error) {
	if p.Kind.AnswerMethod != c.method {
		if c.exact {
			return callback.Reply{}, fault.New(fault.CallbackNotFound, "callback %q is of another kind", p.ID)
		}
		return callback.Reply{}, fault.New(fault.AnswerInvalid,
			"callback %q is a %s, which %s does not answer", p.ID, p.Kind.Method, c.method).
			WithField("request_id").With("callback_id", p.ID)
	}
	params := c.params.Clone()
	params.Set("requestId", nil)
	if p.Kind.Method == callback.PermissionRequested && !c.exact {
		decision, err := wire.PermissionDecision(p, params.Get("result"), "result")
		if err != nil {
			return callback.Reply{}, err
		}
		params.Set("result", decision)
	}
	return callback.Reply{Members: params.JSON()}, nil
}

// answerRequest answers what the CLI asks by a request and tells of by an event as well.
// The CLI arbitrates between the two ways; its request to the bridge ends with the other.
func (*Service) answerRequest(ctx context.Context, s *session.Session, c *call) (json.RawMessage, error) {
	result, at, err := s.Loader().Do(ctx, c.method, c.params)
	if err == nil && session.Refused(result, c.method) == nil {
		s.Callbacks().AnsweredElsewhere(c.params.String("requestId"), requestsOf[c.method])
	}
	return recorded(ctx, result, at, err)
}

// requestsOf are the requests of the CLI that methods answer in another way.
var requestsOf = map[string]string{
	"session.ui.handlePendingUserInput":      "userInput.request",
	"session.ui.handlePendingExitPlanMode":   "exitPlanMode.request",
	"session.ui.handlePendingAutoModeSwitch": "autoModeSwitch.request",
}
