package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// stored is an event that a CLI process keeps in its history.
type stored struct {
	json string
	// said is the number of the prompt of a user's message; part for its later messages, -1 for all other events.
	said int
	// unendable: it is the abort of a turn that could not end, which the bridge makes itself. The turn is continued.
	unendable bool
	// agent: it is an event of a sub-agent.
	agent bool
	// turnless: it is the error of a message that no turn has taken up.
	turnless bool
	// other: it is a message that another program has sent.
	other bool
}

// disk is what CLI processes have written down of the session.
type disk struct {
	events []stored
	// known: the session has a record, without which no process can resume it.
	known bool
	// file is how many events are in earlier files of the record.
	file int
}

// phase is what the agent of a process does.
type phase uint8

const (
	idle     phase = iota
	thinking       // a request to the model is under way
	calling        // tools are called
	aborting       // the turn is being aborted: its end and the reply are still to come
	deciding       // a turn has ended: another message is taken up, or the agent comes to rest
	resting        // the agent has said that it is idle, and the session has not
)

// input is a message that waits for the agent.
type input struct {
	n          int      // of the prompt; continuation for the message of the bridge itself
	ids, texts []string // of its messages, which are taken up together
}

// continuation stands for the message that tells the agent to continue an interrupted turn.
const continuation = -1

// part stands for the later messages of a prompt of several.
const part = -2

// request is a request of the bridge, or its answer to one of the process.
type request struct {
	id     json.RawMessage
	method string
	params params
	answer json.RawMessage
	// loads: the bridge resumes a session that it does not know the process to have.
	loads bool
	// satellite is the connection of a participant that it came on, and done gets its end; nil for others.
	satellite *satellite
	done      chan error
}

// params are those parameters of requests that the model looks at.
type params struct {
	SessionID, Prompt, DisplayPrompt, Mode, RequestID, Cursor, EventID string
	ModelID, Path, EventType, Name, Data, StatusText                   string
	Status                                                             int
	End                                                                bool
	Messages                                                           []sentMessage
	Result, RequestHeaders, Error                                      json.RawMessage
	ContinuePendingWork                                                bool
	DisableResume                                                      bool
	declaration
}

// cli is a CLI process, as the package comment describes it. What it does next is one of several steps: one of the
// requests, one of the replies, the turn, or the record of the session.
type cli struct {
	w        *world
	life     *life // of the bridge that began it; nil if that had ended
	pipe     *pipe
	requests []request // received and not worked on yet
	replies  []string  // made and not sent yet

	loaded bool
	// refused: it has refused a configuration, so that the bridge does not know which token it has.
	refused bool
	closed  bool // it had the session, which was destroyed, or ended by a deletion that it refused
	used    bool // it has received a message
	// worked: it has an event to write down besides those of its begin and end.
	worked  bool
	events  []stored
	written int // events that the disk has
	file    int // events in earlier files
	// inherited are the events of earlier processes.
	inherited int

	phase           phase
	queue, steering []input
	turn            []int  // the prompts of the turn that runs
	text            string // the text of its answer
	left            int    // requests to the model before the last one of the turn
	shut            bool   // the session's work has ended; messages are ignored
	stuck           bool   // the request to the model has no end
	stops           bool   // a permission was refused with no word for the agent, which stops behind the calls
	aborted         bool   // the agent has not been idle since the last abort
	abort           request
	abortEvent      stored

	declared  declaration
	settings  processSettings
	calls     []*toolCall // that have not ended
	stale     []*toolCall // of an earlier process, which cannot go on
	cancelled []*toolCall // by an abort
	resumed   bool        // an earlier process began the calls
	// took is the prompt whose turn an earlier process began; -1 without one.
	took      int
	questions map[string]*toolCall
	commands  []running // that wait for participants
	// models are its requests to models that callers answer.
	models []*modelCall
	// satellites are the connections of participants; canvases are the requests of their canvases.
	satellites []*satellite
	canvases   []string
	// lost are the requests of sessions that have ended in the process.
	lost map[string]bool
	// refusal is the error of refusedMethod.
	refusal string
	// copies are the ephemeral events of which a second copy may come.
	copies []string
	// opened is the event of a create or resume that comes behind its reply.
	opened opened
	// agent is the member that names the sub-agent whose events are sent; "" for the session's own agent.
	agent string
}

// opened is an event that comes behind a reply.
type opened struct {
	reply string
	tell  func()
}

func newCLI(w *world) *cli {
	l := w.life
	c := &cli{w: w, life: l, questions: map[string]*toolCall{}}
	c.pipe = newPipe(c.receive, func() { w.point(l) })
	return c
}

func (c *cli) receive(body []byte) {
	var m struct {
		ID            json.RawMessage
		Method        string
		Params        params
		Result, Error json.RawMessage
	}
	if err := json.Unmarshal(body, &m); err != nil {
		c.w.fail("the bridge sends %q: %v", body, err)
		return
	}
	loads := m.Method == "session.resume" && c.life != nil && c.life.s.Loader().State() == session.Unloaded
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.note("bridge: %s", body)
	c.w.idle = 0
	c.w.checkCall(m.Method)
	if strings.HasPrefix(m.Method, "session.") && m.Params.SessionID != "s1" {
		c.w.failures = append(c.w.failures, fmt.Sprintf("the bridge calls %s for the session %q", m.Method, m.Params.SessionID))
	}
	if m.Method == "session.send" && !strings.HasPrefix(m.Params.Prompt, "P") {
		c.w.continuations++
		c.w.stop.cuts = len(c.w.cuts)
		if c.w.stop.underway > 0 || c.w.stop.done {
			c.w.failures = append(c.w.failures, "the agent is told to continue a turn that a caller has aborted")
		}
	}
	if m.ID != nil && !c.modelReplied(m.Method, string(m.ID), string(m.Result)+string(m.Error)) {
		c.requests = append(c.requests, request{
			id: m.ID, method: m.Method, params: m.Params, answer: append(m.Result, m.Error...), loads: loads,
		})
		c.checkRequest(c.requests[len(c.requests)-1])
		c.endsMeanwhile(c.requests[len(c.requests)-1])
	}
}

// steps are what the process can do next.
func (c *cli) steps() (all []func()) {
	for i, r := range c.requests {
		if !c.ready(r) || c.held(r) {
			continue
		}
		all = append(all, func() {
			c.requests = slices.Delete(c.requests, i, i+1)
			c.w.note("CLI works on %s %s", r.id, r.method)
			c.handle(r)
		})
	}
	for i := range c.replies {
		all = append(all, func() {
			text := c.replies[i]
			c.replies = slices.Delete(c.replies, i, i+1)
			c.w.note("CLI: %s", text)
			c.pipe.say(text)
			if c.opened.reply == text {
				c.opened.tell()
				c.opened = opened{}
			}
		})
	}
	if c.phase == calling {
		all = append(all, c.callSteps()...)
	} else if c.active() && !c.stuck && c.asksModel() == nil {
		all = append(all, c.goOn)
	}
	if c.worked && c.written < len(c.events) {
		all = append(all, c.write)
	}
	return all
}

// catchUp has the process do what takes it less than seconds: take the answers to callbacks, list what it waits for, reply
// to both, and take up a message that waits for the agent.
func (c *cli) catchUp() {
	received := c.requests
	c.requests = nil
	for _, r := range received {
		if callback.Answers(r.method) || strings.Contains(strings.ToLower(r.method), "pendingrequests") || modelMethod(r.method) {
			c.handle(r)
		} else {
			c.requests = append(c.requests, r)
		}
	}
	for (c.phase == deciding || c.phase == resting) && len(c.queue)+len(c.steering) > 0 {
		c.goOn()
	}
	c.replies = slices.DeleteFunc(c.replies, func(text string) bool {
		ready := strings.Contains(text, `"success":`) || strings.Contains(text, `"items":`) || strings.Contains(text, `"accepted":`)
		if ready {
			c.pipe.say(text)
		}
		return ready
	})
}

func (c *cli) reply(r request, result string) {
	c.replies = append(c.replies, `{"jsonrpc":"2.0","id":`+string(r.id)+`,"result":`+result+`}`)
}

// open replies to a create or resume. Its event comes before the reply, or right behind it.
func (c *cli) open(r request, tell func()) {
	c.reply(r, loaded)
	if c.w.lot()%2 == 0 {
		tell()
		return
	}
	c.opened = opened{c.replies[len(c.replies)-1], tell}
}

// active reports whether the agent has something to do.
func (c *cli) active() bool { return c.phase != idle || len(c.queue)+len(c.steering) > 0 }

// ephemeral are the types of events that the record does not have.
var ephemeral = map[string]bool{
	"session.idle": true, "assistant.idle": true, "user_input.requested": true, "user_input.completed": true,
	"session.snapshot_rewind": true, "command.execute": true, "command.completed": true,
}

// emit sends an event, and keeps it unless its type is an ephemeral one.
func (c *cli) emit(eventType, data string, said int) {
	if e := c.send(eventType, data, said); !ephemeral[eventType] {
		c.events = append(c.events, e)
		c.worked = c.worked || eventType != "session.resume" && eventType != "session.shutdown"
	}
}

// send sends an event.
func (c *cli) send(eventType, data string, said int) stored {
	text := eventJSON(c.w.uuid(), c.w.now(), c.agent, eventType, ephemeral[eventType], data)
	c.w.note("CLI: %s%s %s", c.agent, eventType, data)
	c.notify(text)
	if ephemeral[eventType] {
		c.copies = append(c.copies, text)
	}
	e := stored{json: text, said: said, agent: c.agent != ""}
	if c.w.clustered {
		c.w.owner.emitted[journal.ParseID([]byte(e.id()))] = e
	}
	return e
}

// eventJSON is the JSON of an event. Its values need no escapes. agent is a member, or empty.
func eventJSON(id, timestamp, agent, eventType string, ephemeral bool, data string) string {
	return `{"id":"` + id + `","timestamp":"` + timestamp + `","parentId":null,` + agent + `"type":"` + eventType +
		`","ephemeral":` + strconv.FormatBool(ephemeral) + `,"data":` + data + `}`
}

func (c *cli) notify(event string) {
	c.pipe.say(`{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"s1","event":` + event + `}}`)
}

// repeat sends the second copy of an ephemeral event, as in a burst: it may come very late.
func (c *cli) repeat(n int) {
	if len(c.copies) == 0 {
		return
	}
	i := n % len(c.copies)
	c.w.note("CLI: a second copy of %s", c.copies[i])
	c.w.streamed.watched = true
	c.notify(c.copies[i])
	c.copies = slices.Delete(c.copies, i, i+1)
}

// help has a sub-agent of the turn that runs do something.
func (c *cli) help(n int) {
	if c.phase != thinking && c.phase != calling {
		return
	}
	c.agent = `"agentId":"helper",`
	defer func() { c.agent = "" }()
	switch n % 6 {
	case 0:
		c.emit("user.message", `{"content":"P0","interactionId":"h"}`, -1)
	case 1:
		c.emit("assistant.turn_start", `{"turnId":"0","interactionId":"h"}`, -1)
	case 2:
		c.emit("assistant.message", `{"content":"help","toolRequests":[]}`, -1)
	case 3:
		c.emit("assistant.message", `{"content":"help","toolRequests":[{"name":"t"}]}`, -1)
	case 4:
		c.emit("tool.execution_start", `{"toolCallId":"h","toolName":"t"}`, -1)
	case 5:
		c.emit("assistant.turn_end", `{"turnId":"0"}`, -1)
	}
}

// write writes the record down, unless the process has only resumed the session.
func (c *cli) write() {
	if !c.worked {
		return
	}
	c.w.note("CLI writes %d events", len(c.events))
	c.written = len(c.events)
	c.w.disk.events = slices.Clone(c.events)
	c.w.disk.known = c.w.disk.known || slices.ContainsFunc(c.events, func(e stored) bool { return e.said >= 0 })
}

// shutDown ends a process whose input has ended: it was killed, too, or it shuts the session down, perhaps after it has
// worked on what it has received. A message that the agent was about to take up is lost, or fails, or comes behind the end.
func (c *cli) shutDown(n int) {
	if !c.loaded || n%4 == 0 {
		return
	}
	if n%4 > 1 {
		for _, r := range c.requests {
			if c.ready(r) {
				c.handle(r)
			}
		}
	}
	if !c.loaded { // the session was destroyed
		return
	}
	if c.phase == aborting {
		c.cancelCalls()
	}
	waiting := c.phase == idle || c.phase == aborting
	if waiting = waiting && len(c.queue) > 0; waiting && n%8 == 2 {
		c.emit("session.error", `{"errorType":"query","message":"Execution failed"}`, -1)
		c.events[len(c.events)-1].turnless = true
		for _, n := range c.lastTurn() { // which was lost or aborted: the record does not say that the error is of another message
			c.w.ended(n, "FAILED")
		}
	}
	c.emit("session.shutdown", `{"shutdownType":"routine"}`, -1)
	if waiting && n%8 == 3 {
		c.w.interaction++
		c.say(c.queue[0], "idle")
	}
	c.write()
	c.w.disk.known = c.w.disk.known || c.used
}

// lastTurn are the prompts of the last turn; a process that has begun none looks into the record.
func (c *cli) lastTurn() []int {
	if len(c.turn) > 0 {
		return c.turn
	}
	for _, e := range slices.Backward(c.events) {
		if e.isMessage() && e.said >= 0 && unfinished(c.events[:len(c.events)-1]) {
			return []int{e.said}
		} else if e.isMessage() {
			break
		}
	}
	return nil
}

// beginAbort ends the turn and removes the messages that wait.
func (c *cli) beginAbort(r request) {
	if c.phase == idle && len(c.queue)+len(c.steering) == 0 || c.phase == aborting {
		c.reply(r, `{}`)
		return
	}
	c.w.aborts++
	c.aborted = true
	c.abortEvent = c.send("abort", `{"reason":"user_initiated"}`, -1)
	if c.abortEvent.unendable = slices.ContainsFunc(c.calls, func(t *toolCall) bool { return t.stage == unended }); c.abortEvent.unendable {
		for _, p := range c.w.prompts {
			p.unended = p.unended || !p.over
		}
	} else {
		c.w.stop.called = true // its caller may have gone before the turn began
	}
	c.removeWaiting()
	works := c.phase == thinking || c.phase == calling
	if c.phase != idle {
		c.w.turns.end("ABORTED")
	}
	for _, n := range c.turn {
		c.w.ended(n, "ABORTED")
		c.w.prompt(n).late = !works
	}
	c.stuck = false
	c.cancelModels()
	if works && !c.resumed {
		c.phase, c.abort, c.cancelled, c.calls = aborting, r, c.calls, nil
		return
	}
	c.events, c.worked = append(c.events, c.abortEvent), true
	if c.phase == idle || c.phase == calling { // a turn that an earlier process began has no end of its own
		c.phase, c.calls, c.resumed = deciding, nil, false
	}
	c.reply(r, `{}`)
}

// removeWaiting removes the messages that wait, as abortEvent says.
func (c *cli) removeWaiting() {
	for _, in := range slices.Concat(c.steering, c.queue) {
		c.w.ended(in.n, "ABORTED")
		p := c.w.prompt(in.n)
		p.doubtful, p.stuck = !p.sent, p.stuck || c.stuck
		p.abort, p.unread = c.abortEvent.id(), slices.ContainsFunc(c.replies, func(text string) bool { return strings.Contains(text, in.ids[0]) })
	}
	c.steering, c.queue, c.stops = nil, nil, false
}

// goOn has the agent do the next thing.
func (c *cli) goOn() {
	switch c.phase {
	case idle:
		c.takeUp("idle")
	case thinking:
		if c.left > 0 {
			c.useTool()
		} else {
			c.answer()
		}
	case aborting:
		c.cancelCalls()
		c.reply(c.abort, `{}`)
		c.phase = deciding
	case deciding:
		if c.takeUp("queued"); c.phase == deciding {
			c.emit("assistant.idle", `{}`, -1)
			c.phase = resting
		}
	case resting:
		if c.takeUp("idle"); c.phase == resting {
			c.write()
			data := `{}`
			if c.aborted {
				data = `{"aborted":true}`
			}
			c.emit("session.idle", data, -1)
			c.phase, c.turn, c.aborted = idle, nil, false
		}
	}
}

// takeUp begins the turn of the next message, if one waits. Those that were to steer come first.
func (c *cli) takeUp(delivery string) {
	var in input
	switch {
	case len(c.steering) > 0:
		in, c.steering = c.steering[0], c.steering[1:]
	case len(c.queue) > 0:
		in, c.queue = c.queue[0], c.queue[1:]
	default:
		return
	}
	c.w.interaction++
	c.w.stop.turn()
	c.w.turns.begin()
	c.turn, c.text, c.aborted, c.phase = nil, fmt.Sprint("A", in.n), false, thinking
	c.checkHeaders(in)
	c.say(in, delivery)
	c.emit("assistant.turn_start", fmt.Sprintf(`{"turnId":"0","interactionId":"i%d"}`, c.w.interaction), -1)
	c.left = c.w.prompt(in.n).steps
}

// say notes that the agent has taken a message up.
func (c *cli) say(in input, delivery string) {
	c.interrupt()
	c.turn = append(c.turn, in.n)
	if c.w.prompt(in.n).settled {
		c.w.failures = append(c.w.failures, fmt.Sprintf("the agent gets P%d again, whose turn had ended", in.n))
	}
	p := c.w.prompt(in.n)
	p.began, p.turn = true, c.w.interaction
	for i, text := range in.texts {
		said := in.n
		if strings.HasPrefix(text, fmt.Sprintf("P%d.", in.n)) {
			said = part
		}
		c.emit("user.message", fmt.Sprintf(`{"content":%q,"messageId":%q,"interactionId":"i%d","delivery":%q}`,
			text, in.ids[i], c.w.interaction, delivery), said)
		p.event = c.events[len(c.events)-1].id()
	}
}

// useTool ends a step of the turn with a tool, and begins the next with the messages that steer it. If the tool needs
// callers, the next step begins when they have answered.
func (c *cli) useTool() {
	c.left--
	if kinds := c.w.prompt(c.turn[0]).calls; kinds != "" {
		c.beginCalls(kinds)
		return
	}
	c.emit("assistant.message", `{"content":"calling","toolRequests":[{"name":"t"}]}`, -1)
	c.emit("tool.execution_start", `{"toolCallId":"t","toolName":"t"}`, -1)
	c.emit("tool.execution_complete", `{"toolCallId":"t"}`, -1)
	c.emit("assistant.turn_end", `{"turnId":"0"}`, -1)
	c.beginStep(1)
}

// end notes the outcome of the turn.
func (c *cli) end(outcome string) {
	for _, n := range c.turn {
		c.w.ended(n, outcome)
	}
	c.w.turns.end(outcome)
}

// answer is the end of a turn.
func (c *cli) answer() {
	outcome := "COMPLETED " + c.text
	if c.text != "C" && c.w.prompt(c.turn[0]).fails {
		c.emit("assistant.turn_end", `{"turnId":"0"}`, -1)
		c.emit("session.error", `{"errorType":"query","message":"broken"}`, -1)
		outcome = "FAILED"
	} else {
		c.emit("assistant.message", fmt.Sprintf(`{"content":%q,"toolRequests":[]}`, c.text), -1)
		c.emit("assistant.turn_end", `{"turnId":"0"}`, -1)
	}
	c.end(outcome)
	if c.text == "C" && len(c.turn) == 0 && c.took >= 0 {
		c.w.prompts[c.took].wentOn = true
	}
	c.phase = deciding
}
