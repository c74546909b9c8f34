package fakecli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"
)

var (
	errAborted  = errors.New("aborted")
	errUnloaded = errors.New("unloaded")
)

// toolDef is the part of a tool's definition that matters here.
type toolDef struct {
	Name           string `json:"name"`
	Description    string `json:"description"`
	SkipPermission bool   `json:"skipPermission"`
}

// config is the part of create and resume parameters that matters here.
type config struct {
	SessionID           string     `json:"sessionId"`
	Model               string     `json:"model"`
	WorkingDirectory    string     `json:"workingDirectory"`
	Tools               *[]toolDef `json:"tools"`
	Streaming           *bool      `json:"streaming"`
	RequestPermission   bool       `json:"requestPermission"`
	RequestElicitation  bool       `json:"requestElicitation"`
	Hooks               bool       `json:"hooks"`
	DisableResume       bool       `json:"disableResume"`
	ContinuePendingWork bool       `json:"continuePendingWork"`
	ClientName          string     `json:"clientName"`
}

// input is one prompt waiting or being answered.
type input struct {
	text, messageID, delivery string
}

// pending is something the client has been asked by an event.
type pending struct {
	id, kind string // kind: tool, permission
	info     json.RawMessage
	answer   chan json.RawMessage
}

const (
	pendingTool       = "tool"
	pendingPermission = "permission"
)

// sentEvent is an event as it was sent.
type sentEvent struct {
	kind, id string
	frame    []byte
}

// session is one loaded session. Everything is guarded by CLI.mu.
type session struct {
	cli    *CLI
	id     string
	config config
	joined []*conn
	tools  map[*conn][]toolDef

	created, modified time.Time
	title, mode       string
	approveAll        bool

	events  []stored // persisted ones
	last    string   // id of the last persisted one
	file    sessionFile
	saving  bool // from the first prompt on
	started bool // the first turn has been announced

	queue   []input
	running bool
	// interaction is the id of the answer to the prompt that runs.
	interaction string
	ctx         context.Context
	cancel      context.CancelCauseFunc
	waiting     map[string]*pending
	restored    []*pending  // asked by an earlier process, not yet taken up
	latest      sentEvent   // the last event emitted
	behind      unsent      // of events that are not sent yet
	late        []sentEvent // those to copy after session.idle
	gone        bool
}

func newSession(c *CLI, id string, cfg config) *session {
	s := &session{
		cli: c, id: id, config: cfg, tools: map[*conn][]toolDef{}, mode: "interactive",
		created: c.opts.Now(), modified: c.opts.Now(), waiting: map[string]*pending{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// join makes k one of the connections that get the events.
func (s *session) join(k *conn, cfg config) {
	if !slices.Contains(s.joined, k) {
		s.joined = append(s.joined, k)
	}
	switch {
	case cfg.Tools != nil:
		s.tools[k] = *cfg.Tools
	case s.cli.opts.Script.Version == "1.0.81":
		delete(s.tools, k)
	}
	s.config.RequestPermission = s.config.RequestPermission || cfg.RequestPermission
	s.config.Hooks = s.config.Hooks || cfg.Hooks
	s.config.RequestElicitation = cfg.RequestElicitation
	if cfg.Streaming != nil {
		s.config.Streaming = cfg.Streaming
	}
	if cfg.Model != "" {
		s.config.Model = cfg.Model
	}
	if cfg.WorkingDirectory != "" {
		s.config.WorkingDirectory = cfg.WorkingDirectory
	}
}

// leave undoes join; with the last one the session is unloaded.
func (s *session) leave(k *conn) bool {
	i := slices.Index(s.joined, k)
	if i < 0 {
		return false
	}
	if len(s.joined) == 1 {
		s.unload()
		return true
	}
	s.joined = slices.Delete(s.joined, i, i+1)
	delete(s.tools, k)
	s.emit("session.tools_updated", obj("model", s.config.Model), true)
	return true
}

// unload ends the session at once, in the middle of a turn too.
func (s *session) unload() {
	s.emit("session.shutdown", obj("shutdownType", "routine", "totalApiDurationMs", 0,
		"sessionStartTime", s.created.UnixMilli(), "codeChanges",
		obj("linesAdded", 0, "linesRemoved", 0, "filesModified", []string{}),
		"modelMetrics", obj()), false)
	s.stop(errUnloaded)
	delete(s.cli.sessions, s.id)
	if s.saving {
		s.cli.archive.keep(s.id, s.events)
	}
	s.file.close()
	s.cli.notifyAll("host.event", obj("scope", obj("type", "session", "sessionId", s.id), "kind", "task_transition",
		"payload", obj("kind", "disposed", "taskJson", nil)))
}

func (s *session) stop(cause error) {
	s.gone = true
	s.cancel(cause)
}

// tool finds a declared tool.
func (s *session) tool(name string) (toolDef, bool) {
	for _, k := range s.joined {
		for _, t := range s.tools[k] {
			if t.Name == name {
				return t, true
			}
		}
	}
	return toolDef{}, false
}

// clash finds a tool that another connection declares too.
func (s *session) clash(k *conn, tools []toolDef) string {
	for _, t := range tools {
		for other, theirs := range s.tools {
			if other != k && slices.ContainsFunc(theirs, func(d toolDef) bool { return d.Name == t.Name }) {
				return t.Name
			}
		}
	}
	return ""
}

// emit sends an event to the connections in the session, and stores it unless it is ephemeral. It returns the event's
// id, or nothing when the session is gone.
func (s *session) emit(kind string, data []byte, ephemeral bool) string {
	if s.gone || s.cli.dead {
		return ""
	}
	id, now := s.cli.newID(), s.cli.opts.Now()
	event := make([]byte, 0, len(data)+256)
	event = append(event, `{"type":"`...)
	event = append(event, kind...)
	event = append(event, `","data":`...)
	event = append(event, data...)
	if ephemeral {
		event = append(event, `,"ephemeral":true`...)
	}
	event = append(event, `,"id":"`...)
	event = append(event, id...)
	event = append(event, `","timestamp":"`...)
	event = now.UTC().AppendFormat(event, "2006-01-02T15:04:05.000Z")
	event = append(event, `","parentId":`...)
	if s.last == "" {
		event = append(event, "null}"...)
	} else {
		event = append(append(append(event, '"'), s.last...), `"}`...)
	}
	entry := Entry{Kind: EntryEvent, Session: s.id, Type: kind, ID: id, Ephemeral: ephemeral}
	if !ephemeral {
		entry.Body = data
	}
	s.cli.oracle.add(entry)
	s.latest = sentEvent{kind, id, s.eventFrame(event)}
	s.deliver(s.latest.frame, now)
	if !ephemeral {
		s.persist(stored{Type: kind, ID: id, Data: data, raw: event}, now)
	}
	return id
}

func (s *session) eventFrame(event []byte) []byte {
	params := make([]byte, 0, len(event)+len(s.id)+32)
	params = append(params, `{"sessionId":"`...)
	params = append(params, s.id...)
	params = append(params, `","event":`...)
	params = append(params, event...)
	return frame(notification("session.event", append(params, '}')))
}

// persist stores a durable event, and notifies all connections that the session changed.
func (s *session) persist(e stored, now time.Time) {
	s.last, s.modified = e.ID, now
	s.events = append(s.events, e)
	if s.saving {
		s.file.append(e)
	}
	s.lifecycle("session.updated")
}

// save starts keeping the session beyond its life in memory. The real one too
// forgets a session that never had a prompt.
func (s *session) save() {
	if s.saving || s.gone || s.cli.dead { // nobody would close the file
		return
	}
	s.saving = true
	s.file = s.cli.archive.create(s.id)
	for _, e := range s.events {
		s.file.append(e)
	}
}

// lifecycle goes to every connection, joined or not.
func (s *session) lifecycle(kind string) {
	s.cli.notifyAll("session.lifecycle", obj("type", kind, "sessionId", s.id,
		"metadata", obj("startTime", stamp(s.created), "modifiedTime", stamp(s.modified))))
}

// meta describes a session as list and getMetadata do.
func (s *session) meta() json.RawMessage {
	return describe(s.id, s.created, s.modified, s.title, s.config.WorkingDirectory)
}

func describe(id string, created, modified time.Time, title, cwd string) json.RawMessage {
	return obj("sessionId", id, "startTime", stamp(created), "modifiedTime", stamp(modified), "isRemote", false,
		"isDetached", false, "summary", title, "name", title, "clientName", "sdk", "context", obj("cwd", cwd))
}

func orEmpty(data json.RawMessage) json.RawMessage {
	if len(data) == 0 {
		return json.RawMessage("{}")
	}
	return data
}
