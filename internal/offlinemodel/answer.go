package offlinemodel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// answer is one request being answered.
type answer struct {
	scope   *Scope
	request *Request
	w       http.ResponseWriter
	http    *http.Request
}

// model answers a model request by the script.
func (a *answer) model() {
	rule, found, script := a.scope.pick(a.request)
	if rule == nil {
		a.refuse(http.StatusBadRequest, fmt.Sprintf("no rule of the offline model's script matches the request; the "+
			"user's text is %q",
			a.request.UserText()))
		return
	}
	// The context also ends when the scope does.
	ctx, cancel := context.WithCancelCause(a.http.Context())
	defer cancel(nil)
	defer context.AfterFunc(a.scope.ctx, func() { cancel(errClosed) })()

	err := a.perform(ctx, rule, found, script)
	if err == nil {
		return
	}
	outcome := OutcomeClientGone
	if errors.Is(err, errDrop) || errors.Is(err, errClosed) {
		outcome = OutcomeDropped
	}
	a.scope.note(a.request, a.request.Status, outcome)
}

func (a *answer) perform(ctx context.Context, rule *compiledRule, found *values, script *Script) error {
	if rule.rule.WaitFor != "" {
		if err := a.scope.passGate(ctx, rule.rule.WaitFor); err != nil {
			return err
		}
	}
	if rule.rule.Delay > 0 {
		if err := sleep(ctx, rule.rule.Delay); err != nil {
			return err
		}
	}
	for name, value := range rule.rule.Headers {
		a.w.Header().Set(name, value)
	}
	if rule.rule.Error != nil {
		a.fail(rule.rule.Error)
		return nil
	}
	p := &player{scope: a.scope, request: a.request, values: found, pace: script.Stream, onStart: func() {}}
	if a.request.Streaming {
		return a.stream(ctx, p, rule)
	}
	return a.document(ctx, p, rule)
}

func (a *answer) stream(ctx context.Context, p *player, rule *compiledRule) error {
	header := a.w.Header()
	header.Set("content-type", "text/event-stream")
	header.Set("cache-control", "no-cache")
	header.Set("x-request-id", a.id())
	p.events = newEventWriter(a.w)
	reply := a.reply()
	reply.usage = p.usage(rule.rule)
	p.to = wires[a.request.API].stream(p.events, reply)
	p.onStart = func() { a.scope.note(a.request, http.StatusOK, OutcomePending) }
	if err := p.play(ctx, rule); err != nil {
		return err
	}
	a.scope.note(a.request, http.StatusOK, OutcomeAnswered)
	return nil
}

func (a *answer) document(ctx context.Context, p *player, rule *compiledRule) error {
	collected := &collector{}
	p.to = collected
	if err := p.play(ctx, rule); err != nil {
		return err
	}
	reply := a.reply()
	reply.finish, reply.usage = p.finishReason(rule.rule), p.usage(rule.rule)
	a.w.Header().Set("x-request-id", a.id())
	a.json(http.StatusOK, wires[a.request.API].document(reply, collected.blocks))
	return nil
}

func (a *answer) reply() reply {
	return reply{id: a.id(), model: a.request.Model, created: time.Now().Unix()}
}

// id names the answer, after the fashion of each API.
func (a *answer) id() string {
	prefix := map[API]string{APICompletions: "chatcmpl-offline-", APIResponses: "resp_offline_",
		APIAnthropic: "msg_offline_"}
	return prefix[a.request.API] + strconv.Itoa(a.request.Number)
}

// refuse answers with an error of the endpoint itself.
func (a *answer) refuse(status int, message string) {
	a.fail(&Failure{Status: status, Message: message})
}

func (a *answer) fail(f *Failure) {
	if f.RetryAfter > 0 {
		seconds := int((f.RetryAfter + time.Second - 1) / time.Second)
		a.w.Header().Set("retry-after", strconv.Itoa(seconds))
	}
	a.w.Header().Set("x-github-request-id", "offline-"+strconv.Itoa(a.request.Number))
	failing := *f
	if failing.Message == "" {
		failing.Message = http.StatusText(f.Status)
	}
	format, ok := wires[a.request.API]
	if !ok {
		format = completionsWire{}
	}
	a.json(f.Status, format.failure(&failing))
}

func (a *answer) json(status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":{"message":"the answer cannot be written as JSON"}}`)
	}
	a.w.Header().Set("content-type", "application/json")
	a.w.Header().Set("content-length", strconv.Itoa(len(text)))
	// Noted first, so that a client that has the answer finds it noted.
	a.scope.note(a.request, status, OutcomeAnswered)
	a.w.WriteHeader(status)
	if _, err := a.w.Write(text); err != nil {
		a.scope.note(a.request, status, OutcomeClientGone)
	}
}
