package shim

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// ownMethods are the methods that are about the connection or about the process that the
// shim stands in for.
var ownMethods map[string]func(c *conn, ctx context.Context, r *rpcconn.Request) (json.RawMessage, error)

func init() {
	ownMethods = map[string]func(c *conn, ctx context.Context, r *rpcconn.Request) (json.RawMessage, error){
		"connect":                           (*conn).connect,
		"runtime.shutdown":                  (*conn).shutdown,
		"session.create":                    (*conn).create,
		"session.resume":                    (*conn).resume,
		"session.destroy":                   (*conn).destroy,
		"session.detach":                    (*conn).destroy,
		"session.shutdown":                  (*conn).shutSession,
		"session.delete":                    (*conn).remove,
		"sessions.delete":                   (*conn).remove,
		"sessions.close":                    (*conn).remove,
		"session.sendAndWait":               (*conn).sendAndWait,
		"session.tools.set":                 (*conn).setTools,
		"session.eventLog.registerInterest": (*conn).registerInterest,
		"host.start":                        (*conn).startHost,
		"host.dispose":                      (*conn).callHost,
		"host.listSessions":                 (*conn).callHost,
		"host.publishSession":               (*conn).callHost,
		"host.unpublishSession":             (*conn).callHost,
		"sessionFs.setProvider":             (*conn).provideFiles,
		"llmInference.setProvider":          (*conn).provideModels,
		"llmInference.httpResponseStart":    (*conn).respondHead,
		"llmInference.httpResponseChunk":    (*conn).respondChunk,
	}
}

var (
	succeeded = json.RawMessage(`{"success":true}`)
	nothing   = json.RawMessage(`{"success":false}`)
)

// connect is the handshake. The bridge has made its own with the CLI: what the CLI said
// then is the answer.
func (c *conn) connect(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	params := r.Params
	if len(params) == 0 || params[0] == 'n' {
		params = json.RawMessage(`{}`)
	}
	token, params := splitToken(params)
	if err := c.authenticate(token); err != nil {
		return nil, err
	}
	if err := connectParams.check(params); err != nil {
		return nil, &rpcconn.Error{Code: codeInvalidParams, Message: "Invalid connect request: " + err.Error()}
	}
	var p struct {
		Telemetry bool `json:"enableGitHubTelemetryForwarding"`
		// Kinds are the kinds of background tasks that the program understands.
		Kinds []string `json:"supportedTaskKinds"`
	}
	_ = json.Unmarshal(params, &p) // an array, which the CLI accepts, sets nothing
	if p.Telemetry {
		c.forwardTelemetry()
	}
	reply := &bridgev1.PingResponse{}
	if err := c.invoke(ctx, bridgev1.RuntimeService_Ping_FullMethodName,
		&bridgev1.PingRequest{RuntimeProfile: c.unprovided()}, reply); err != nil {
		return nil, err
	}
	c.server.counter.typed("connect")
	greeting := reply.GetGreeting()
	if !slices.Contains(p.Kinds, "client") { // the bridge understands it
		greeting.TaskKinds = slices.DeleteFunc(greeting.GetTaskKinds(), func(k cliv1.TaskKind) bool {
			return k == cliv1.TaskKind_TASK_KIND_CLIENT
		})
	}
	return c.server.tables.write(greeting)
}

// splitToken takes the token out of the parameters of connect. For the CLI an empty token, or one that is no string, is
// none.
func splitToken(params json.RawMessage) (token string, others json.RawMessage) {
	members, err := jsonobj.Parse(params)
	if err != nil {
		return "", params
	}
	token = members.String("token")
	members.Set("token", nil)
	return token, members.JSON()
}

// authenticate checks a token as the CLI does.
func (c *conn) authenticate(token string) error {
	want := c.server.config.Token
	if c.trusted {
		want = ""
	}
	switch {
	case want == "" && token != "":
		return &rpcconn.Error{Code: codeAuthNotSet, Message: "AUTHENTICATION_NOT_CONFIGURED"}
	case want == "":
	case subtle.ConstantTimeCompare([]byte(token), []byte(want)) != 1:
		return &rpcconn.Error{Code: codeAuthFailed, Message: "AUTHENTICATION_FAILED"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connected = true
	return nil
}

// shutdown ends what the program takes for the CLI's process, which is this one: the
// bridge's goes on, unless it is the shim's own. The program may kill this process at the
// answer, so nothing is left to do then.
func (c *conn) shutdown(_ context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	c.server.counter.own("runtime.shutdown")
	c.server.end.begin(c.server.shutdown)
	r.Replied = c.server.end.replied
	return json.RawMessage(`null`), nil
}

// destroy leaves a session, and ends it if there are no other participants.
func (c *conn) destroy(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	id, named := sessionIn(r.Params)
	p := c.sessions.participant(id)
	detach := r.Method == "session.detach"
	switch {
	case !named:
		return nil, noSession(r.Method)
	case p == nil && !detach:
		c.server.counter.own(r.Method)
		return nothing, nil
	case p == nil:
		c.server.counter.own(r.Method)
		return succeeded, nil
	}
	c.server.counter.typed(r.Method)
	p.detaching.Store(detach)
	p.leave(true)
	p.awaitDone(ctx)
	c.sessions.drop(p, nil)
	return succeeded, nil
}

// sessionIn returns the session that parameters name, which may be "". named is false unless they have a string.
func sessionIn(params json.RawMessage) (id string, named bool) {
	var p struct{ SessionID *string }
	if json.Unmarshal(params, &p) != nil || p.SessionID == nil {
		return "", false
	}
	return *p.SessionID, true
}

// shutSession is session.shutdown.
func (c *conn) shutSession(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	if p := c.sessions.participant(about(r.Params).SessionID); p != nil {
		set := func(on bool) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.shutting = on
		}
		set(true)
		defer set(false)
	}
	return c.call(ctx, r.Method, r.Params)
}

// remove handles a method that ends a session for all participants. Its reply follows all remaining events of the
// session, and the connection's participation ends.
func (c *conn) remove(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	p := c.sessions.participant(about(r.Params).SessionID)
	result, err := c.call(ctx, r.Method, r.Params)
	var done struct{ Success *bool }
	if p == nil || err != nil || json.Unmarshal(result, &done) != nil || done.Success != nil && !*done.Success {
		return result, err
	}
	p.awaitEnd(leaveTimeout)
	return result, nil
}

// sendAndWait is a method that SDKs newer than the supported CLIs try first. They fall back to
// session.send where the CLI does not have it, which none of the supported ones does.
func (c *conn) sendAndWait(_ context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	c.server.counter.own(r.Method)
	return nil, unhandled(r.Method)
}

// setTools replaces the tools of the connection.
func (c *conn) setTools(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	id := about(r.Params).SessionID
	p := c.sessions.participant(id)
	if p == nil {
		return c.call(ctx, "session.tools.set", r.Params)
	}
	members, _ := jsonobj.Parse(orEmpty(r.Params))
	if !config.AreTools(members.Get("tools")) {
		return c.call(ctx, r.Method, r.Params) // the CLI refuses it
	}
	o, err := openingOf(c.server.tables, r.Params, true)
	if err != nil {
		return nil, failure("session.tools.set", err.Error())
	}
	c.server.counter.typed("session.tools.set")
	var before []*cliv1.ToolDefinition
	p.change(func(start *bridgev1.AttachStart) { before, start.Tools = start.GetTools(), o.start.GetTools() })
	cmd := &bridgev1.AttachCommand{Command: &bridgev1.AttachCommand_SetTools{SetTools: &bridgev1.SetToolsCommand{Tools: o.start.GetTools()}}}
	if err := p.command(ctx, cmd); err != nil {
		p.change(func(start *bridgev1.AttachStart) { start.Tools = before })
		return nil, err
	}
	return json.RawMessage(`{}`), nil
}

// registerInterest makes the program the participant that events of the type ask, if they ask something.
func (c *conn) registerInterest(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	var about struct{ SessionID, EventType string }
	_ = json.Unmarshal(r.Params, &about) // the bridge says what is wrong
	p, kind := c.sessions.participant(about.SessionID), callback.ForEvent(about.EventType)
	if p != nil && kind != nil && kind.Interest {
		var handlers *bridgev1.Handlers
		p.change(func(start *bridgev1.AttachStart) {
			start.Handlers.Kinds = append(start.Handlers.Kinds, kind.Type)
			handlers = start.GetHandlers()
		})
		cmd := &bridgev1.AttachCommand{Command: &bridgev1.AttachCommand_SetHandlers{SetHandlers: handlers}}
		if err := p.command(ctx, cmd); err != nil {
			return nil, failure("session.eventLog.registerInterest", err.Error())
		}
	}
	return c.call(ctx, "session.eventLog.registerInterest", r.Params)
}
