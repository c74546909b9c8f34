package fakecli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// call is a request being answered. The lock is held throughout.
type call struct {
	conn   *conn
	cli    *CLI
	method string
	params json.RawMessage
	after  []func() // runs right after the reply has been queued
}

// then puts off what the real one does after replying.
func (c *call) then(f func()) { c.after = append(c.after, f) }

// fail is how nearly every error looks.
func (c *call) fail(format string, args ...any) *rpcError {
	return &rpcError{Code: -32603,
		Message: "Request " + c.method + " failed with message: " + fmt.Sprintf(format, args...)}
}

type handler func(*call) (json.RawMessage, *rpcError)

var (
	yes = json.RawMessage(`{"success":true}`)
	no  = json.RawMessage(`{"success":false}`)
)

// methods are the methods served.
var methods = map[string]handler{
	"connect":                (*call).connect,
	"ping":                   (*call).ping,
	"status.get":             (*call).status,
	"auth.getStatus":         fixed(`{"isAuthenticated":false,"statusMessage":"Not authenticated"}`),
	"models.list":            (*call).notAuthenticated,
	"account.getQuota":       (*call).notAuthenticated,
	"runtime.shutdown":       (*call).shutdown,
	"sessions.checkInUse":    fixed(`{"inUse":[]}`),
	"sessions.fork":          (*call).fork,
	"session.create":         (*call).create,
	"session.resume":         (*call).resume,
	"session.destroy":        (*call).destroy,
	"session.detach":         (*call).destroy,
	"session.delete":         (*call).remove,
	"session.list":           (*call).list,
	"session.getMetadata":    (*call).getMetadata,
	"session.getLastId":      (*call).getLastID,
	"session.getForeground":  (*call).getForeground,
	"session.setForeground":  (*call).setForeground,
	"session.getMessages":    loaded((*call).getMessages),
	"session.send":           loaded((*call).send),
	"session.abort":          loaded((*call).abort),
	"session.shutdown":       loaded((*call).shutDown),
	"session.log":            loaded((*call).log),
	"session.tools.set":      loaded((*call).toolsSet),
	"session.mode.get":       loaded((*call).modeGet),
	"session.mode.set":       loaded((*call).modeSet),
	"session.options.update": loaded(func(*call, *session) (json.RawMessage, *rpcError) { return yes, nil }),

	"session.metadata.activity":                          loaded((*call).activity),
	"session.model.getCurrent":                           loaded((*call).modelGet),
	"session.model.switchTo":                             loaded((*call).modelSwitch),
	"session.tools.handlePendingToolCall":                answerTo(pendingTool),
	"session.tools.listPendingRequests":                  listPending(pendingTool),
	"session.permissions.handlePendingPermissionRequest": answerTo(pendingPermission),
	"session.permissions.pendingRequests":                listPending(pendingPermission),
	"session.permissions.setApproveAll":                  loaded((*call).setApproveAll),
}

// run finds and runs the method.
func (c *call) run() (json.RawMessage, *rpcError) {
	switch {
	case c.cli.stopping:
		return nil, &rpcError{Code: -32000, Message: "SERVER_SHUTTING_DOWN"}
	case !c.conn.authorised && c.method != "connect":
		return nil, &rpcError{Code: -32001, Message: "AUTHENTICATION_REQUIRED"}
	}
	if result, ok := c.cli.opts.Script.Replies[c.method]; ok {
		return result, nil
	}
	if h, ok := methods[c.method]; ok {
		return h(c)
	}
	if event := askedWith(c.method); event != "" {
		return answerTo(event)(c)
	}
	return nil, &rpcError{Code: -32601, Message: "Unhandled method " + c.method}
}

func fixed(result string) handler {
	return func(*call) (json.RawMessage, *rpcError) { return json.RawMessage(result), nil }
}

// loaded finds the session a request names.
func loaded(h func(*call, *session) (json.RawMessage, *rpcError)) handler {
	return func(c *call) (json.RawMessage, *rpcError) {
		id := c.sessionID()
		if id == "" {
			return nil, c.fail("Missing sessionId in %s request", c.method)
		}
		s := c.cli.sessions[id]
		if s == nil {
			return nil, c.fail("Session not found for sessionId: %s", id)
		}
		return h(c, s)
	}
}

// read decodes params leniently: like the real one, it ignores members that do not fit.
func (c *call) read(into any) { _ = json.Unmarshal(c.params, into) }

func (c *call) sessionID() string {
	var p struct{ SessionID string }
	c.read(&p)
	return p.SessionID
}

func (c *call) connect() (json.RawMessage, *rpcError) {
	var p struct{ Token *string }
	c.read(&p)
	switch token := c.cli.opts.Token; {
	case p.Token != nil && (token == "" || !c.conn.tcp):
		return nil, &rpcError{Code: -32003, Message: "AUTHENTICATION_NOT_CONFIGURED"}
	case c.conn.tcp && token != "" && (p.Token == nil || *p.Token != token):
		return nil, &rpcError{Code: -32002, Message: "AUTHENTICATION_FAILED"}
	}
	c.conn.authorised = true
	script := c.cli.opts.Script
	if script.Version == "1.0.81" {
		return obj("ok", true, "protocolVersion", script.Protocol, "version", script.Version), nil
	}
	return obj("ok", true, "protocolVersion", script.Protocol, "version", script.Version, "taskKinds",
		[]string{"agent", "shell"}), nil
}

func (c *call) ping() (json.RawMessage, *rpcError) {
	var p struct{ Message string }
	c.read(&p)
	return obj("message", "pong: "+p.Message, "timestamp", stamp(c.cli.opts.Now()), "protocolVersion",
		c.cli.opts.Script.Protocol), nil
}

func (c *call) status() (json.RawMessage, *rpcError) {
	version := c.cli.opts.Script.Version
	if version == "1.0.81" {
		version = "0.0.1" // as it really says
	}
	return obj("version", version, "protocolVersion", c.cli.opts.Script.Protocol), nil
}

func (c *call) notAuthenticated() (json.RawMessage, *rpcError) {
	return nil, c.fail("Not authenticated. Please authenticate first.")
}

func (c *call) activity(s *session) (json.RawMessage, *rpcError) {
	return obj("abortable", s.running, "hasActiveWork", s.running), nil
}

func (c *call) shutdown() (json.RawMessage, *rpcError) {
	c.then(func() { c.cli.tasks.Go(c.cli.Shutdown) })
	return nil, nil
}

func (c *call) create() (json.RawMessage, *rpcError) {
	var cfg config
	c.read(&cfg)
	if err := c.checkTools(cfg); err != nil {
		return nil, err
	}
	if strings.ContainsAny(cfg.SessionID, "/\\") || strings.HasPrefix(cfg.SessionID, ".") {
		return nil, c.fail("Rejected session.create request with invalid sessionId: %s", cfg.SessionID)
	}
	if s := c.cli.sessions[cfg.SessionID]; s != nil { // not an error: it joins
		return c.joinLoaded(s, cfg)
	}
	if cfg.SessionID == "" {
		cfg.SessionID = c.cli.newID()
	}
	s := newSession(c.cli, cfg.SessionID, cfg)
	c.cli.sessions[s.id], c.cli.lastID = s, s.id
	s.join(c.conn, cfg)
	s.lifecycle("session.created")
	c.then(func() {
		s.emit("session.start", obj("sessionId", s.id, "version", 1, "producer", "copilot-agent",
			"copilotVersion", c.cli.opts.Script.Version, "startTime", stamp(s.created), "selectedModel", cfg.Model,
			"context", obj("cwd", cfg.WorkingDirectory), "remoteSteerable", false, "alreadyInUse", false), false)
		s.managedSettings()
		s.lifecycle("session.created") // the real one says it twice
	})
	return s.opened(), nil
}

func (c *call) checkTools(cfg config) *rpcError {
	if cfg.Tools == nil {
		return nil
	}
	for _, t := range *cfg.Tools {
		if t.Name == "" || strings.ContainsFunc(t.Name, func(r rune) bool {
			return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		}) {
			return c.fail("Invalid tool name: %s", t.Name)
		}
	}
	return nil
}

func (c *call) joinLoaded(s *session, cfg config) (json.RawMessage, *rpcError) {
	if cfg.Tools != nil {
		if name := s.clash(c.conn, *cfg.Tools); name != "" {
			return nil, c.fail("External tool name clash: %s already registered by another connection", name)
		}
	}
	s.join(c.conn, cfg)
	return s.opened(), nil
}

func (c *call) resume() (json.RawMessage, *rpcError) {
	var cfg config
	c.read(&cfg)
	if cfg.SessionID == "" {
		return nil, c.fail("Missing sessionId in session.resume request")
	}
	if err := c.checkTools(cfg); err != nil {
		return nil, err
	}
	s, cold := c.cli.sessions[cfg.SessionID], false
	if s == nil {
		events := c.cli.archive.load(cfg.SessionID)
		if len(events) == 0 {
			return nil, c.fail("Failed to load session events: Session not found: %s", cfg.SessionID)
		}
		s, cold = newSession(c.cli, cfg.SessionID, cfg), true
		s.restore(events)
		c.cli.sessions[s.id] = s
	}
	result, err := c.joinLoaded(s, cfg)
	if err != nil {
		return nil, err
	}
	c.cli.lastID = s.id
	c.then(func() {
		active := s.running
		if !cfg.DisableResume {
			s.emit("session.resume", obj("resumeTime", stamp(c.cli.opts.Now()), "eventCount", len(s.events),
				"selectedModel", s.config.Model, "context", obj("cwd", s.config.WorkingDirectory), "alreadyInUse",
				false,
				"continuePendingWork", cfg.ContinuePendingWork, "sessionWasActive", active), false)
		}
		s.managedSettings()
		if cold && cfg.ContinuePendingWork {
			s.continueWork()
		}
	})
	return result, nil
}

// opened is the result of create and resume.
func (s *session) opened() json.RawMessage {
	pairs := []any{
		"sessionId", s.id, "nativeSessionId", s.id, "startTime", stamp(s.created), "isRemote", false, "mode", s.mode,
		"workspacePath", s.cli.archive.dir(s.id),
		"capabilities",
		obj("ui", obj("elicitation", s.config.RequestElicitation, "mcpApps", false, "canvases", false), "extensions",
			false),
	}
	if s.cli.opts.Script.Version != "1.0.81" {
		pairs = append(pairs, "modelState", obj("modelId", s.config.Model))
	}
	return obj(pairs...)
}

func (s *session) managedSettings() {
	s.emit("session.managed_settings_resolved", obj("source", "none", "serverManaged", false, "deviceManaged", false,
		"failClosed", false, "bypassPermissionsDisabled", false, "managedKeys", []string{}), true)
}

func (c *call) destroy() (json.RawMessage, *rpcError) {
	if s := c.cli.sessions[c.sessionID()]; s != nil && s.leave(c.conn) {
		return yes, nil
	}
	return no, nil
}

func (c *call) remove() (json.RawMessage, *rpcError) {
	id := c.sessionID()
	s := c.cli.sessions[id]
	if s != nil {
		s.stop(errUnloaded)
		s.file.close()
		delete(c.cli.sessions, id)
	}
	if found := c.cli.archive.remove(id); !found && s == nil {
		return obj("success", false, "error", "Session file not found for "+id), nil
	}
	c.cli.notifyAll("session.lifecycle", obj("type", "session.deleted", "sessionId", id))
	return yes, nil
}

// fork says that it has made a copy of a session, and makes none.
func (c *call) fork() (json.RawMessage, *rpcError) {
	id := c.sessionID()
	if c.cli.sessions[id] == nil && len(c.cli.archive.load(id)) == 0 {
		return nil, c.fail("Session not found: %s", id)
	}
	return obj("sessionId", c.cli.newID()), nil
}

func (c *call) list() (json.RawMessage, *rpcError) {
	var p struct{ Filter *struct{ Cwd string } }
	c.read(&p)
	ids := c.cli.archive.ids()
	for id, s := range c.cli.sessions {
		if s.saving && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	sessions := []json.RawMessage{}
	for _, id := range ids {
		meta := c.cli.metadata(id)
		var m struct{ Context struct{ Cwd string } }
		if meta == nil || p.Filter != nil && p.Filter.Cwd != "" && json.Unmarshal(meta, &m) == nil &&
			m.Context.Cwd != p.Filter.Cwd {
			continue
		}
		sessions = append(sessions, meta)
	}
	return obj("sessions", sessions), nil
}

func (c *call) getMetadata() (json.RawMessage, *rpcError) {
	if meta := c.cli.metadata(c.sessionID()); meta != nil {
		return obj("session", meta), nil
	}
	return obj(), nil
}

// metadata describes a session that was ever prompted, loaded or not.
func (c *CLI) metadata(id string) json.RawMessage {
	if s := c.sessions[id]; s != nil {
		if !s.saving {
			return nil
		}
		return s.meta()
	}
	events := c.archive.load(id)
	if len(events) == 0 {
		return nil
	}
	s := newSession(c, id, config{})
	s.restore(events)
	return s.meta()
}

func (c *call) getLastID() (json.RawMessage, *rpcError) {
	var last string
	var modified time.Time
	for _, id := range c.cli.archive.ids() {
		if e := c.cli.archive.load(id); len(e) > 0 && e[len(e)-1].Timestamp.After(modified) {
			last, modified = id, e[len(e)-1].Timestamp
		}
	}
	if s := c.cli.sessions[c.cli.lastID]; s != nil && s.saving {
		last = s.id
	}
	if last == "" {
		return obj(), nil
	}
	return obj("sessionId", last), nil
}

func (c *call) getForeground() (json.RawMessage, *rpcError) {
	if c.cli.foreground == "" {
		return obj(), nil
	}
	return obj("sessionId", c.cli.foreground), nil
}

func (c *call) setForeground() (json.RawMessage, *rpcError) {
	id := c.sessionID()
	s := c.cli.sessions[id]
	if s == nil {
		return obj("success", false, "error", "Session not found: "+id), nil
	}
	c.cli.foreground = id
	c.then(func() { s.lifecycle("session.foreground") })
	return yes, nil
}
