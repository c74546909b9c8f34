package shim

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// callbackTimeout is how long the bridge waits for answers: the CLI has no limit.
const callbackTimeout = 30 * 24 * time.Hour

// heartbeat is how often the bridge gives a sign of life.
const heartbeat = 15 * time.Second

// opening is what a program says of a session that it creates or resumes.
type opening struct {
	id     string
	start  *bridgev1.AttachStart
	config *cliv1.SessionConfig
	cloud  *cliv1.CloudSessionConfig
	extras *cliv1.SessionResumeExtras
	pend   bool // continuePendingWork
	tools  bool // it names tools, or that there are none
}

const pendingWork = "continuePendingWork"

// extraMembers are the members that only a resume takes.
var extraMembers = []string{"disableResume", "openCanvases", "factories", "requestedEnvironmentVariables"}

// openingOf reads the parameters of session.create and session.resume: what belongs to the
// program's connection goes into the start, all else into the session's configuration.
func openingOf(t *tables, params json.RawMessage, resume bool) (*opening, error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(orEmpty(params), &members); err != nil {
		return nil, err
	}
	o := &opening{start: &bridgev1.AttachStart{
		Exact: true, Handlers: handlersOf(members),
		Filter: &bridgev1.EventFilter{IncludeLarge: true},
		Options: &bridgev1.StreamOptions{
			Fidelity: bridgev1.Fidelity_FIDELITY_EXACT, HeartbeatInterval: durationpb.New(heartbeat),
		},
	}}
	_, o.tools = members["tools"]
	_ = json.Unmarshal(members["sessionId"], &o.id)
	_ = json.Unmarshal(members[pendingWork], &o.pend)
	if err := o.apart(t, members, resume); err != nil {
		return nil, err
	}
	for _, name := range append(callback.Switches(), "sessionId", pendingWork, "requestPermission") {
		delete(members, name)
	}
	text, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	o.config = &cliv1.SessionConfig{}
	if err := t.read(text, o.config); err != nil {
		return nil, err
	}
	s, config := o.start, o.config
	s.Tools, config.Tools = config.GetTools(), nil
	s.Commands, config.Commands = config.GetCommands(), nil
	s.Canvases, config.Canvases = config.GetCanvases(), nil
	s.ExtensionInfo, config.ExtensionInfo = config.GetExtensionInfo(), nil
	s.CanvasProvider, config.CanvasProvider = config.GetCanvasProvider(), nil
	return o, nil
}

// apart takes out the members that are no part of a configuration.
func (o *opening) apart(t *tables, members map[string]json.RawMessage, resume bool) error {
	if cloud := members["cloud"]; cloud != nil {
		o.cloud = &cliv1.CloudSessionConfig{}
		if err := t.read(cloud, o.cloud); err != nil {
			return err
		}
		delete(members, "cloud")
	}
	if !resume {
		return nil
	}
	extras := map[string]json.RawMessage{}
	if string(members[pendingWork]) == "false" { // differs from none in the session.resume event
		extras[pendingWork] = members[pendingWork]
	}
	for _, name := range extraMembers {
		if value, ok := members[name]; ok {
			extras[name] = value
			delete(members, name)
		}
	}
	if len(extras) == 0 {
		return nil
	}
	text, err := json.Marshal(extras)
	if err != nil {
		return err
	}
	o.extras = &cliv1.SessionResumeExtras{}
	return t.read(text, o.extras)
}

// tokenRegistration is the member by which a program gives GitHub tokens when asked.
const tokenRegistration = "gitHubTokenProviderRegistrationId"

// handlersOf is what a program handles by its configuration: what it has switched on, and
// all that needs no switch.
func handlersOf(members map[string]json.RawMessage) *bridgev1.Handlers {
	on := func(name string) bool { return string(members[name]) == "true" }
	h := &bridgev1.Handlers{Permission: on("requestPermission")}
	for number := range bridgev1.CallbackKind_name {
		kind := bridgev1.CallbackKind(number)
		name, ok := callback.MethodOf(kind)
		if !ok || callback.ForEvent(name) != nil && callback.SwitchFor(name) == "" {
			continue
		}
		if provider(name) != "" {
			continue // by profile
		}
		if kind == bridgev1.CallbackKind_CALLBACK_KIND_GITHUB_TOKEN && members[tokenRegistration] == nil {
			continue // it would make the bridge ask for one
		}
		if s := callback.SwitchFor(name); s == "" || on(s) {
			h.Kinds = append(h.Kinds, kind)
		}
	}
	return h
}

// checkOpening checks what the CLI checks before it reads the parameters of session.create and session.resume.
func checkOpening(r *rpcconn.Request) error {
	if len(r.Params) == 0 || r.Params[0] == 'n' {
		return nil
	}
	if r.Params[0] != '{' {
		return failure(r.Method, "session lifecycle params must be an object")
	}
	members, err := jsonobj.Parse(r.Params)
	if err != nil {
		return failure(r.Method, err.Error())
	}
	id := members.Get("sessionId")
	if r.Method == "session.create" && id != nil && id[0] != '"' && id[0] != 'n' {
		return failure(r.Method, "session.create sessionId must be a string")
	}
	return nil
}

// create is session.create.
func (c *conn) create(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	if err := checkOpening(r); err != nil {
		return nil, err
	}
	o, err := openingOf(c.server.tables, r.Params, false)
	if err != nil {
		return nil, failure("session.create", err.Error())
	}
	if o.id == "" {
		o.id = newSessionID(o)
	}
	o.start.Session = &bridgev1.AttachStart_Create{Create: &bridgev1.CreateSessionRequest{
		RequestId: rand.Text(), SessionId: o.id, Config: o.config, Cloud: o.cloud,
		Lifetime:        bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT,
		CallbackTimeout: durationpb.New(callbackTimeout), RuntimeProfile: c.profile(),
	}}
	return c.join(ctx, r, o)
}

// resume is session.resume.
func (c *conn) resume(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	if err := checkOpening(r); err != nil {
		return nil, err
	}
	if id, named := sessionIn(r.Params); !named {
		return nil, noSession(r.Method)
	} else if id == "" {
		return nil, failure(r.Method, "Rejected session.resume request with invalid sessionId: ")
	}
	o, err := openingOf(c.server.tables, r.Params, true)
	if err != nil {
		return nil, failure("session.resume", err.Error())
	}
	profile := c.profile()
	if p := c.sessions.participant(o.id); p != nil {
		profile = nil // it stays where it is
	}
	o.start.Session = &bridgev1.AttachStart_Resume{Resume: &bridgev1.ResumeSessionRequest{
		RequestId: rand.Text(), SessionId: o.id, Config: o.config, ContinuePendingWork: o.pend,
		Lifetime: bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT, Options: o.extras,
		CallbackTimeout: durationpb.New(callbackTimeout), RuntimeProfile: profile,
	}}
	return c.join(ctx, r, o)
}

// join makes the connection a participant, or one anew. A program that ends a connection and
// has the next do the same finds nothing of the first in its way: its end may be read a moment
// later than the other's request.
func (c *conn) join(ctx context.Context, r *rpcconn.Request, o *opening) (json.RawMessage, error) {
	c.addProviders(o.start)
	o.start.Grace = durationpb.New(c.server.config.Grace)
	others := c.server.others(c, o.id)
	result, err := c.joinOnce(ctx, r, o)
	resume := o.start.GetResume()
	if resume == nil || reasonOf(status.Convert(err)) != fault.Name(fault.ToolNameConflict) || !settled(ctx, others) {
		return result, err
	}
	resume.RequestId = rand.Text()
	return c.joinOnce(ctx, r, o)
}

// endPatience is how long the end of a connection may be on its way.
const endPatience = 100 * time.Millisecond

// others are the connections in a session, but for one.
func (s *Server) others(but *conn, id string) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(s.conns)),
		func(c *conn) bool { return c == but || !c.sessions.in(id) })
}

// settled waits for one of the connections to have ended, and reports whether any has.
func settled(ctx context.Context, others []*conn) bool {
	ctx, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	ended := make(chan *conn, len(others))
	for _, other := range others {
		go func() {
			select {
			case <-other.rpc.Done():
				ended <- other
			case <-ctx.Done():
				ended <- nil
			}
		}()
	}
	for range others {
		if other := <-ended; other != nil {
			other.sessions.awaitLeft(leaveTimeout)
			return true
		}
	}
	return false
}

// joinOnce is join, with what happens to be in the session.
func (c *conn) joinOnce(ctx context.Context, r *rpcconn.Request, o *opening) (json.RawMessage, error) {
	if before := c.sessions.participant(o.id); before != nil && !before.gone() {
		before.handOver(o)
	}
	p := newParticipant(c, o)
	r.Replied = p.release // events after the CLI's answer wait for ours
	before, ok := c.sessions.add(p)
	if !ok {
		return nil, &rpcconn.Error{Code: codeInternal, Message: "the connection has ended"}
	}
	result, err := p.opened(ctx)
	if err != nil {
		c.sessions.drop(p, before)
		return nil, err
	}
	if before != nil {
		before.awaitEnd(leaveTimeout)
	}
	c.server.counter.typed(r.Method)
	return result, nil
}

// newSessionID chooses the id of a session whose program names none.
func newSessionID(o *opening) string {
	if o.cloud != nil {
		return "" // GitHub chooses it
	}
	return uuid.NewString()
}
