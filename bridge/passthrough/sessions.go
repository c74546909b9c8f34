package passthrough

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"

	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// done is the result of a call that only succeeds.
var done = json.RawMessage(`{"success":true}`)

// undone is what the CLI answers, without an error, when there was nothing to do.
var undone = json.RawMessage(`{"success":false}`)

// opening reads the parameters of session.create and session.resume.
func (svc *Service) opening(c *call) (o session.Opening, err error) {
	members := c.params.Clone()
	resume := c.method == "session.resume"
	o.ContinuePending = members.Bool("continuePendingWork")
	for _, own := range []string{"suppressResumeEvent", "openCanvases", "cloud"} {
		if value := members.Get(own); value != nil {
			o.Params.Set(own, value)
			members.Set(own, nil)
		}
	}
	if resume && members.Bool("disableResume") {
		o.Params.SetBool("disableResume", true)
	}
	o.Handling = &config.Handling{Methods: switchedOn(members)}
	if resume && len(o.Handling.Methods) == 0 {
		o.Handling = nil
	}
	for _, own := range wire.ReservedMembers {
		members.Set(own, nil)
	}
	o.Exact = c.passErrors(svc)
	if array := members.Get("tools"); array != nil && string(array) != "null" {
		tools, err := svc.toolsOf(c, array)
		if err != nil {
			return o, err
		}
		o.Tools = &tools
	}
	members.Set("tools", nil)
	o.Config = members
	if !o.Exact {
		return o, config.CheckDeclared(members, "")
	}
	return o, nil
}

// toolsOf reads the tools of a call.
func (svc *Service) toolsOf(c *call, array json.RawMessage) ([]config.Tool, error) {
	if c.passErrors(svc) {
		return config.ToolsAsGiven(array), nil
	}
	return config.ParseTools(array, "tools")
}

// switchedOn lists the callbacks that a configuration's switches ask for.
func switchedOn(config jsonobj.Object) (methods []string) {
	if config.Bool("requestPermission") {
		methods = append(methods, callback.PermissionRequested)
	}
	for number := range bridgev1.CallbackKind_name {
		method, ok := callback.MethodOf(bridgev1.CallbackKind(number))
		if method == callback.PermissionRequested {
			continue
		}
		if name := callback.SwitchFor(method); ok && name != "" && config.Bool(name) {
			methods = append(methods, method)
		}
	}
	return methods
}

// create is session.create.
func (svc *Service) create(ctx context.Context, c *call) (json.RawMessage, error) {
	if err := svc.cfg.Shutdown.Accepting(); err != nil {
		return nil, err
	}
	o, err := svc.opening(c)
	if err != nil {
		return nil, err
	}
	id := c.id
	if id == "" {
		id = sessions.NewID()
	} else if err := tenancy.CheckID(id, "session_id"); err != nil {
		return nil, err
	} else if err := svc.cfg.Opener.CheckNew(ctx, svc.cfg.Tenants.CallerProfile(ctx), id); err != nil {
		if c.exact && fault.ReasonOf(err) == fault.SessionExists {
			return svc.resume(ctx, c) // the CLI joins the caller to the session there is
		}
		return nil, err
	}
	s, err := svc.cfg.Opener.Insert(ctx, id, o)
	if err != nil {
		return nil, fields.Rename(err, "config.", "")
	}
	answer, _ := s.Participants().Opened()
	return recorded(ctx, answer, s.Journal().Last(), nil)
}

// resume is session.resume.
func (svc *Service) resume(ctx context.Context, c *call) (json.RawMessage, error) {
	if err := svc.cfg.Shutdown.Accepting(); err != nil {
		return nil, err
	}
	if err := svc.cfg.Sessions.CheckOwn(ctx, c.id, "session_id"); err != nil {
		return nil, err
	}
	o, err := svc.opening(c)
	if err != nil {
		return nil, err
	}
	s, err := svc.cfg.Opener.Reopen(ctx, c.id, o)
	if err != nil {
		return nil, fields.Rename(err, "config.", "")
	}
	answer, _ := s.Participants().Opened()
	return recorded(ctx, answer, s.Journal().Last(), nil)
}

// absent is the answer about a session that is not there: the CLI's own is no error.
func absent(c *call, err error) (json.RawMessage, error) {
	if c.exact && fault.ReasonOf(err) == fault.SessionNotFound {
		return undone, nil
	}
	return nil, err
}

// disconnect implements session.destroy for one caller. The last caller disconnects the session.
func (svc *Service) disconnect(ctx context.Context, c *call) (json.RawMessage, error) {
	if _, err := svc.cfg.Opener.DisconnectSession(ctx, &bridgev1.DisconnectSessionRequest{SessionId: c.id}); err != nil {
		return absent(c, err)
	}
	return done, nil
}

// deleteSession is session.delete.
func (svc *Service) deleteSession(ctx context.Context, c *call) (json.RawMessage, error) {
	_, err := svc.cfg.Opener.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: c.id})
	switch {
	case err == nil:
		return done, nil
	case c.exact:
		return svc.exactDelete(ctx, c, err)
	}
	return nil, err
}

// bulkDelete is sessions.bulkDelete: what is open here is deleted as such before the CLI
// deletes what is left.
func (svc *Service) bulkDelete(ctx context.Context, c *call) (json.RawMessage, error) {
	for _, id := range listOf[string](c.params.Get("sessionIds")) {
		s, err := svc.cfg.Sessions.Open(ctx, id)
		if err != nil {
			continue // of the history only
		}
		if _, err := s.Loader().Disconnect(ctx, true); err != nil {
			return nil, err
		}
		svc.forget(s)
	}
	return svc.forwardServer(ctx, c)
}

// prune is sessions.pruneOld.
func (svc *Service) prune(ctx context.Context, c *call) (json.RawMessage, error) {
	spared := listOf[string](c.params.Get("excludeSessionIds"))
	for _, e := range svc.cfg.Sessions.Visible(ctx) {
		s := e.Session
		if !tenancy.Foreign(ctx, s) { // others are not in the tenant's home
			spared = append(spared, s.ID())
		}
	}
	text, _ := json.Marshal(spared) // strings always encode
	c.params = c.params.Clone()
	c.params.Set("excludeSessionIds", text)
	return svc.forwardServer(ctx, c)
}

// listOf reads a list; what is none is empty.
func listOf[T any](text json.RawMessage) []T {
	list := []T{}
	if json.Unmarshal(text, &list) != nil {
		return []T{}
	}
	return list
}

// send is session.send and what else begins a turn.
func (svc *Service) send(ctx context.Context, c *call) (json.RawMessage, error) {
	sent, err := async.Wait(ctx, func(done func(session.Sent, error)) { svc.startPrompt(ctx, nil, c, done) })
	if err != nil {
		return nil, err
	}
	if c.params.Bool("wait") {
		out := sent.Waiter.Wait(ctx, 0)
		if err := ctx.Err(); err != nil {
			return nil, session.Classify(err, c.method)
		}
		sent.At = out.End
	}
	return recorded(ctx, sent.Result, sent.At, nil)
}

// startPrompt sends the prompt of a call to a session that the caller may use; with nil, to the session that the call
// names, which it may wait for. done is called once, on another goroutine, which it may block.
func (svc *Service) startPrompt(
	ctx context.Context, s *session.Session, c *call, done func(session.Sent, error),
) {
	err := svc.cfg.Shutdown.Accepting()
	if err == nil && s == nil {
		s, err = svc.cfg.Sessions.Open(ctx, c.id)
	}
	var m session.Message
	if err == nil {
		m, err = svc.message(ctx, c)
	}
	if err != nil {
		svc.cfg.Shutdown.Spawn(func() { done(session.Sent{}, err) })
		return
	}
	svc.cfg.Sender.StartMessage(ctx, s, m, done)
}

// message returns the message of a call that begins a turn.
func (svc *Service) message(ctx context.Context, c *call) (m session.Message, err error) {
	prompt := c.params.String("prompt")
	empty := strings.TrimSpace(prompt) == "" && len(listOf[json.RawMessage](c.params.Get("attachments"))) == 0
	if empty && c.method == "session.send" && !c.exact {
		return m, fault.New(fault.PromptEmpty, "the prompt has neither text nor attachments").WithField("prompt")
	}
	size := max(len(prompt), len(c.params.Get("messages")))
	if err := svc.cfg.Admission.CheckPrompt(caller.From(ctx).Tenant, size, "prompt"); err != nil {
		return m, err
	}
	m = session.Message{
		Method: c.method, Params: c.params.Clone(), Request: c.request,
		Immediate: c.params.String("mode") == "immediate",
	}
	m.Params.Set("wait", nil) // it would park the call in the CLI for the whole turn
	return m, nil
}

// abort is session.abort.
func (*Service) abort(ctx context.Context, s *session.Session, c *call) (json.RawMessage, error) {
	out, err := s.Sender().Abort(ctx, c.params)
	if out.Result == nil {
		out.Result = done
	}
	return recorded(ctx, out.Result, out.At, err)
}

// setTools is session.tools.set.
func (svc *Service) setTools(ctx context.Context, s *session.Session, c *call) (json.RawMessage, error) {
	array := c.params.Get("tools")
	if c.exact && !config.AreTools(array) {
		return refused(ctx, s, c)
	}
	tools, err := svc.toolsOf(c, array)
	if err == nil && !c.passErrors(svc) {
		err = s.Participants().CheckNames(ctx, tools, nil, "")
	}
	if err != nil {
		return nil, err
	}
	at, err := s.Settings().SetTools(ctx, tools)
	return recorded(ctx, json.RawMessage(`{}`), at, err)
}

// switchModel is session.model.switchTo.
func (*Service) switchModel(ctx context.Context, s *session.Session, c *call) (json.RawMessage, error) {
	result, at, err := s.Settings().SetModel(ctx, c.params)
	return recorded(ctx, result, at, err)
}

// apply makes a call that sets something which is to outlive the session's being
// unloaded.
func (*Service) apply(ctx context.Context, s *session.Session, c *call) (json.RawMessage, error) {
	rule := rememberedCalls[c.method]
	keep := config.Keep{Key: rule.group, Merge: rule.merge}
	if rule.member != "" {
		keep.Key += "\x00" + c.params.String(rule.member)
	}
	result, at, err := s.Settings().Apply(ctx, c.method, c.params, keep)
	return recorded(ctx, result, at, err)
}

// registerInterest is session.eventLog.registerInterest.
func (*Service) registerInterest(ctx context.Context, s *session.Session, c *call) (json.RawMessage, error) {
	if c.exact && !isString(c.params.Get("eventType")) {
		return refused(ctx, s, c)
	}
	eventType := c.params.String("eventType")
	if eventType == "" && !c.exact {
		return nil, fault.New(fault.InvalidField, "event_type is required").WithField("event_type")
	}
	handle, err := s.Settings().Register(ctx, eventType)
	if err != nil {
		return nil, err
	}
	var result jsonobj.Object
	result.SetString("handle", handle)
	return recorded(ctx, result.JSON(), s.Journal().Last(), nil)
}

// releaseInterest is session.eventLog.releaseInterest.
func (*Service) releaseInterest(ctx context.Context, s *session.Session, c *call) (json.RawMessage, error) {
	if c.exact && !isString(c.params.Get("handle")) {
		return refused(ctx, s, c)
	}
	s.Settings().Unregister(c.params.String("handle"))
	return recorded(ctx, done, s.Journal().Last(), nil)
}

// refused makes a call that the CLI refuses in its own words: a parameter that the bridge would use is missing or of
// another type.
func refused(ctx context.Context, s *session.Session, c *call) (json.RawMessage, error) {
	result, at, err := s.Loader().Do(ctx, c.method, c.params)
	return recorded(ctx, result, at, err)
}

// isString reports whether a member is a string.
func isString(value json.RawMessage) bool { return len(value) > 0 && value[0] == '"' }
