package bridge

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// done is the result of a call that only succeeds.
var done = json.RawMessage(`{"success":true}`)

// undone is what the CLI answers, without an error, when there was nothing to do.
var undone = json.RawMessage(`{"success":false}`)

// cliOpening reads the parameters of session.create and session.resume.
func (b *Bridge) cliOpening(c *cliCall) (o session.Opening, err error) {
	config := c.params.Clone()
	resume := c.method == "session.resume"
	o.ContinuePending = config.Bool("continuePendingWork")
	for _, own := range []string{"suppressResumeEvent", "openCanvases", "cloud"} {
		if value := config.Get(own); value != nil {
			o.Params.Set(own, value)
			config.Set(own, nil)
		}
	}
	if resume && config.Bool("disableResume") {
		o.Params.SetBool("disableResume", true)
	}
	o.Handling = &session.Handling{Methods: switchedOn(config)}
	if resume && len(o.Handling.Methods) == 0 {
		o.Handling = nil
	}
	for _, own := range ownMembers {
		config.Set(own, nil)
	}
	if array := config.Get("tools"); array != nil && string(array) != "null" {
		tools, err := session.ParseTools(array, "tools")
		if err != nil {
			return o, err
		}
		o.Tools = &tools
	}
	config.Set("tools", nil)
	o.Config = config
	return o, nil
}

// switchedOn lists the callbacks that a configuration's switches ask for.
func switchedOn(config session.Object) (methods []string) {
	if config.Bool("requestPermission") {
		methods = append(methods, callback.PermissionRequested)
	}
	for number := range bridgev1.CallbackKind_name {
		method, ok := callback.MethodOf(bridgev1.CallbackKind(number))
		if name := callback.SwitchFor(method); ok && name != "" && config.Bool(name) && method != callback.PermissionRequested {
			methods = append(methods, method)
		}
	}
	return methods
}

// cliCreate is session.create.
func (b *Bridge) cliCreate(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	if err := b.shutdown.Accepting(); err != nil {
		return nil, err
	}
	o, err := b.cliOpening(c)
	if err != nil {
		return nil, err
	}
	id := c.id
	if id == "" {
		id = registry.NewID()
	} else if err := tenancy.CheckID(id, "session_id"); err != nil {
		return nil, err
	} else if err := b.checkNew(ctx, b.own(ctx), id); err != nil {
		if c.exact && fault.ReasonOf(err) == fault.SessionExists {
			return b.cliResume(ctx, c) // the CLI joins whoever asks to the session there is
		}
		return nil, err
	}
	if o.Config, err = b.underlying(ctx, o.Config); err != nil {
		return nil, fields.Rename(err, "config.", "")
	}
	release, err := b.admitSession(caller.From(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	defer release()
	s, fresh := b.getOrCreate(ctx, id)
	if !fresh || s.Journal().Inherited() { // of one whose state is gone
		b.abandon(s, fresh)
		return nil, exists(id)
	}
	placeOf(s).set(b.own(ctx))
	if _, err := s.Create(ctx, o); err != nil {
		b.forget(s)
		return nil, err
	}
	b.saver.Save(s)
	return recorded(ctx, s.Opened(), s.Journal().Last(), nil)
}

// cliResume is session.resume.
func (b *Bridge) cliResume(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	if err := b.shutdown.Accepting(); err != nil {
		return nil, err
	}
	if err := b.checkOwn(ctx, c.id, "session_id"); err != nil {
		return nil, err
	}
	o, err := b.cliOpening(c)
	if err != nil {
		return nil, err
	}
	if s := b.known(ctx, c.id); s == nil || s.Usable() != nil {
		release, err := b.admitSession(caller.From(ctx).Tenant)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	s, fresh := b.getOrCreate(ctx, c.id)
	if o.Config, err = b.restrained(ctx, o.Config); err == nil && fresh {
		o.Config, err = b.underlying(ctx, o.Config)
	}
	if err != nil {
		if fresh {
			b.forget(s)
		}
		return nil, fields.Rename(err, "config.", "")
	}
	if fresh {
		placeOf(s).set(b.own(ctx))
	}
	if _, err := s.Resume(ctx, o); err != nil {
		if fresh {
			b.forget(s)
		}
		return nil, err
	}
	b.saver.Save(s)
	return recorded(ctx, s.Opened(), s.Journal().Last(), nil)
}

// absent is the answer about a session that is not there: the CLI's own is no error.
func absent(c *cliCall, err error) (json.RawMessage, error) {
	if c.exact && fault.ReasonOf(err) == fault.SessionNotFound {
		return undone, nil
	}
	return nil, err
}

// cliDestroy is session.destroy: whoever calls it is done with the session, and the last to
// be is whoever has it open.
func (b *Bridge) cliDestroy(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	if _, err := b.DisconnectSession(ctx, &bridgev1.DisconnectSessionRequest{SessionId: c.id}); err != nil {
		return absent(c, err)
	}
	return done, nil
}

// cliDelete is session.delete.
func (b *Bridge) cliDelete(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	_, err := b.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: c.id})
	switch {
	case err == nil:
		return done, nil
	case c.exact:
		return b.exactDelete(ctx, c, err)
	}
	return nil, err
}

// cliBulkDelete is sessions.bulkDelete: what is open here is deleted as such before the CLI
// deletes what is left.
func (b *Bridge) cliBulkDelete(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	for _, id := range textList(c.params.Get("sessionIds")) {
		s, err := b.open(ctx, id)
		if err != nil {
			continue // of the history only
		}
		if _, err := s.Disconnect(ctx, true); err != nil {
			return nil, err
		}
		b.forget(s)
	}
	return b.forwardServer(ctx, c)
}

// cliPrune is sessions.pruneOld.
func (b *Bridge) cliPrune(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	spared := textList(c.params.Get("excludeSessionIds"))
	for _, s := range b.visible(ctx) {
		if !tenancy.Foreign(ctx, s) { // others are not in the tenant's home
			spared = append(spared, s.ID())
		}
	}
	text, _ := json.Marshal(spared) // strings always encode
	c.params = c.params.Clone()
	c.params.Set("excludeSessionIds", text)
	return b.forwardServer(ctx, c)
}

// textList reads a list of strings; what is none is empty.
func textList(text json.RawMessage) []string {
	list := []string{}
	if json.Unmarshal(text, &list) != nil {
		return []string{}
	}
	return list
}

// cliSend is session.send and what else begins a turn.
func (b *Bridge) cliSend(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	if err := b.shutdown.Accepting(); err != nil {
		return nil, err
	}
	s, err := b.open(ctx, c.id)
	if err != nil {
		return nil, err
	}
	prompt := c.params.String("prompt")
	empty := c.method == "session.send" && strings.TrimSpace(prompt) == "" && len(rawList(c.params.Get("attachments"))) == 0
	if empty && !c.exact {
		return nil, fault.New(fault.PromptEmpty, "the prompt has neither text nor attachments").WithField("prompt")
	}
	if err := b.checkPrompt(caller.From(ctx).Tenant, max(len(prompt), len(c.params.Get("messages"))), "prompt"); err != nil {
		return nil, err
	}
	m := session.Message{Method: c.method, Params: c.params.Clone(), Immediate: c.params.String("mode") == "immediate", Request: c.request}
	wait := m.Params.Bool("wait")
	m.Params.Set("wait", nil) // it would park the call in the CLI for the whole turn
	sent, err := b.say(ctx, s, m)
	if err != nil {
		return nil, err
	}
	if wait {
		out := sent.Waiter.Wait(ctx, 0)
		if err := ctx.Err(); err != nil {
			return nil, session.Classify(err, c.method)
		}
		sent.At = out.End
	}
	return recorded(ctx, sent.Result, sent.At, nil)
}

// rawList reads a list; what is none is empty.
func rawList(text json.RawMessage) (list []json.RawMessage) {
	if json.Unmarshal(text, &list) != nil {
		return nil
	}
	return list
}

// cliAbort is session.abort.
func (b *Bridge) cliAbort(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	s, err := b.open(ctx, c.id)
	if err != nil {
		return nil, err
	}
	if s.State() != session.Loaded {
		return recorded(ctx, done, s.Journal().Last(), nil)
	}
	result, at, err := s.Do(ctx, c.method, c.params)
	return recorded(ctx, result, at, err)
}

// cliSetTools is session.tools.set.
func (b *Bridge) cliSetTools(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	s, err := b.open(ctx, c.id)
	if err != nil {
		return nil, err
	}
	tools, err := session.ParseTools(c.params.Get("tools"), "tools")
	if err != nil {
		return nil, err
	}
	at, err := s.SetTools(ctx, tools)
	return recorded(ctx, json.RawMessage(`{}`), at, err)
}

// cliSwitchModel is session.model.switchTo.
func (b *Bridge) cliSwitchModel(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	s, err := b.open(ctx, c.id)
	if err != nil {
		return nil, err
	}
	result, at, err := s.SetModel(ctx, c.params)
	return recorded(ctx, result, at, err)
}

// cliApply makes a call that sets something which is to outlive the session's being
// unloaded.
func (b *Bridge) cliApply(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	s, err := b.open(ctx, c.id)
	if err != nil {
		return nil, err
	}
	rule := keptSettings[c.method]
	keep := session.Keep{Key: rule.group, Merge: rule.merge}
	if rule.member != "" {
		keep.Key += "\x00" + c.params.String(rule.member)
	}
	result, at, err := s.Apply(ctx, c.method, c.params, keep)
	return recorded(ctx, result, at, err)
}

// cliRegister is session.eventLog.registerInterest.
func (b *Bridge) cliRegister(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	s, err := b.open(ctx, c.id)
	if err != nil {
		return nil, err
	}
	eventType := c.params.String("eventType")
	if eventType == "" {
		return nil, fault.New(fault.InvalidField, "event_type is required").WithField("event_type")
	}
	handle, err := s.Register(ctx, eventType)
	if err != nil {
		return nil, err
	}
	var result session.Object
	result.SetString("handle", handle)
	return recorded(ctx, result.JSON(), s.Journal().Last(), nil)
}

// cliRelease is session.eventLog.releaseInterest.
func (b *Bridge) cliRelease(ctx context.Context, c *cliCall) (json.RawMessage, error) {
	s, err := b.open(ctx, c.id)
	if err != nil {
		return nil, err
	}
	s.Release(c.params.String("handle"))
	return recorded(ctx, done, s.Journal().Last(), nil)
}
