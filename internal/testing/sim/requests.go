package sim

import (
	"fmt"
	"slices"
	"strings"
)

// handle works on a request of the bridge.
func (c *cli) handle(r request) {
	if r.satellite != nil {
		c.onSatellite(r)
		return
	}
	if !c.loaded && strings.HasPrefix(r.method, "session.") && r.method != "session.create" && r.method != "session.resume" &&
		r.method != "session.delete" {
		if r.method == "session.destroy" {
			c.reply(r, `{"success":false}`)
			return
		}
		c.refuse(r, "Session not found: s1")
		return
	}
	switch r.method {
	case "":
		c.answerQuestion(r)
	case "session.destroy":
		c.destroy(r)
	case "session.shutdown":
		c.shutdown(r)
	case "session.delete":
		c.erase(r)
	case rewindMethod, truncateMethod:
		c.rewind(r)
	case "session.create":
		if c.refuses(r) {
			return
		}
		c.loaded, c.declared, c.w.deletion.erased = true, r.params.declaration, false
		c.open(r, func() { c.emit("session.start", `{"sessionId":"s1"}`, -1) })
	case "session.tools.set":
		c.declared.Tools = r.params.Tools
		c.reply(r, `{}`)
	case "session.tools.handlePendingToolCall":
		c.answerCall(r, called)
	case "session.permissions.handlePendingPermissionRequest":
		c.answerCall(r, asked)
	case "session.tools.listPendingRequests":
		c.reply(r, list(c.waiting(called, false)))
	case "session.permissions.pendingRequests":
		c.reply(r, list(c.waiting(asked, false)))
	case "session.resume":
		c.resume(r)
	case "session.getMessages":
		c.reply(r, `{"events":[`+strings.Join(c.newest(), ",")+`]}`)
	case "session.eventLog.read":
		c.readLog(r)
	case "session.send", methodMessages:
		c.take(r)
	case "session.abort":
		c.beginAbort(r)
	case inputMethod:
		c.takeInput(r)
	case invokeMethod:
		c.runCommand(r)
	case "session.commands.handlePendingCommand":
		c.endCommand(r)
	case refusedMethod:
		c.replies = append(c.replies, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, r.id, c.refusal))
	case responseStart, responseChunk:
		c.takeResponse(r)
	case removeMethod:
		c.removeLast(r)
	case "session.metadata.activity":
		c.reply(r, fmt.Sprintf(`{"hasActiveWork":%v}`, c.active()))
	default:
		if !c.set(r) {
			c.reply(r, `{}`)
		}
	}
}

// resume loads the session from its record, or takes another configuration of a session that is loaded.
func (c *cli) resume(r request) {
	if c.loaded {
		c.resumeLoaded(r)
		return
	}
	if !c.w.disk.known {
		c.w.epochs.reason = true // the session begins anew
		c.refuse(r, "Failed to load session events: Session not found: s1")
		return
	}
	if c.refuses(r) {
		return
	}
	c.refuseEarlier(r)
	c.w.changeByOthers()
	c.loaded, c.declared, c.settings = true, r.params.declaration, processSettings{}
	c.events = slices.Clone(c.w.disk.events)
	c.written, c.inherited, c.file = len(c.events), len(c.events), c.w.disk.file
	c.w.begins(c)
	c.takeOver(r.params.ContinuePendingWork)
	c.open(r, func() {
		var resumed []stored // the record has it behind the calls
		if !r.params.DisableResume {
			data := fmt.Sprintf(`{"eventCount":1,"continuePendingWork":%v,"sessionWasActive":false}`, r.params.ContinuePendingWork)
			resumed = append(resumed, c.send("session.resume", data, -1))
		}
		if r.params.ContinuePendingWork {
			c.interrupt()
		}
		c.events = append(c.events, resumed...)
	})
}
