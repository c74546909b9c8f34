package fakecli

import "encoding/json"

func (c *call) getMessages(s *session) (json.RawMessage, *rpcError) {
	events := make([]json.RawMessage, len(s.events))
	for i, e := range s.events {
		events[i] = e.raw
	}
	return joinArray(`{"events":`, events, `}`), nil
}

// joinArray builds an array of raw texts without looking into them.
func joinArray(before string, items []json.RawMessage, after string) json.RawMessage {
	b := append([]byte(before), '[')
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, item...)
	}
	return append(append(b, ']'), after...)
}

func (c *call) send(s *session) (json.RawMessage, *rpcError) {
	var p struct{ Prompt, Mode string }
	c.read(&p)
	in := input{text: p.Prompt, messageID: c.cli.newID(), delivery: "idle"}
	s.save()
	s.emit("pending_messages.modified", obj(), true)
	switch {
	case s.running && p.Mode == "immediate":
		in.delivery = "steering"
		c.then(func() { s.userMessage(in) })
	case s.running:
		in.delivery = "queued"
		s.queue = append(s.queue, in)
	default:
		s.queue = append(s.queue, in)
		s.running = true
		c.then(func() { s.start(s.work) })
	}
	return obj("messageId", in.messageID), nil
}

func (c *call) abort(s *session) (json.RawMessage, *rpcError) {
	if s.running {
		s.emit("abort", obj("reason", "user_initiated"), false)
		s.queue = nil
		s.cancel(errAborted)
	}
	return yes, nil
}

// shutDown ends the session's work.
func (c *call) shutDown(s *session) (json.RawMessage, *rpcError) {
	_, err := c.abort(s)
	return json.RawMessage("null"), err
}

func (c *call) log(s *session) (json.RawMessage, *rpcError) {
	var p struct {
		Message, Level string
		Ephemeral      bool
	}
	c.read(&p)
	kind, member := "session.info", "infoType"
	switch p.Level {
	case "warning":
		kind, member = "session.warning", "warningType"
	case "error":
		kind, member = "session.error", "errorType"
	}
	return obj("eventId", s.emit(kind, obj(member, "notification", "message", p.Message), p.Ephemeral)), nil
}

func (c *call) toolsSet(s *session) (json.RawMessage, *rpcError) {
	var cfg config
	c.read(&cfg)
	if err := c.checkTools(cfg); err != nil {
		return nil, err
	}
	var tools []toolDef
	if cfg.Tools != nil {
		tools = *cfg.Tools
	}
	if name := s.clash(c.conn, tools); name != "" {
		return nil, c.fail("External tool name clash: %s already registered by another connection", name)
	}
	s.tools[c.conn] = tools
	s.emit("session.tools_updated", obj("model", s.config.Model), true)
	return obj(), nil
}

func (c *call) modeGet(s *session) (json.RawMessage, *rpcError) { return encode(s.mode), nil }

func (c *call) modeSet(s *session) (json.RawMessage, *rpcError) {
	var p struct{ Mode string }
	c.read(&p)
	if p.Mode != "interactive" && p.Mode != "plan" && p.Mode != "autopilot" {
		return nil, c.fail("unknown variant `%s`, expected one of `interactive`, `plan`, `autopilot`", p.Mode)
	}
	s.emit("session.mode_changed", obj("previousMode", s.mode, "newMode", p.Mode), false)
	s.mode = p.Mode
	return nil, nil
}

func (c *call) modelGet(s *session) (json.RawMessage, *rpcError) {
	return obj("modelId", s.config.Model), nil
}

func (c *call) modelSwitch(s *session) (json.RawMessage, *rpcError) {
	var p struct{ ModelID string }
	c.read(&p)
	previous := s.config.Model
	s.config.Model = p.ModelID
	s.emit("session.model_change", obj("source", "sdk", "newModel", p.ModelID, "previousModel", previous), false)
	return obj("status", "applied", "deferred", false, "modelId", p.ModelID, "modelState",
		obj("modelId", p.ModelID)), nil
}

// answerTo is a method that answers events of a kind.
func answerTo(kind string) handler {
	return loaded(func(c *call, s *session) (json.RawMessage, *rpcError) { return c.answer(s, kind) })
}

// answer gives the whole params to the waiting turn. The first answer counts, and is not validated here: neither does
// the real one.
func (c *call) answer(s *session, kind string) (json.RawMessage, *rpcError) {
	var p struct{ RequestID *string }
	c.read(&p)
	if p.RequestID == nil {
		return nil, c.fail("Expected string parameter 'requestId'")
	}
	w := s.waiting[*p.RequestID]
	if w == nil || w.kind != kind {
		return no, nil
	}
	delete(s.waiting, w.id)
	w.answer <- c.params
	return yes, nil
}

// listPending is a method that lists what events of a kind ask for.
func listPending(kind string) handler {
	return loaded(func(_ *call, s *session) (json.RawMessage, *rpcError) {
		items := []json.RawMessage{}
		for _, w := range s.waiting {
			if w.kind == kind {
				items = append(items, w.info)
			}
		}
		return joinArray(`{"items":`, items, `}`), nil
	})
}

func (c *call) setApproveAll(s *session) (json.RawMessage, *rpcError) {
	var p struct{ Enabled bool }
	c.read(&p)
	s.approveAll = p.Enabled
	s.emit("session.permissions_changed", obj(), false)
	return yes, nil
}
