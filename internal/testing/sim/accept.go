package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// Plan is what the agent makes of a prompt: "P0" is the text of the first one, "P1" that of the next.
type Plan struct {
	// Steps are its requests to the model besides the last one; each calls tools of these kinds, one letter a tool.
	Steps int
	Calls string
	// Fails: its last request to the model fails. The answer of P0 is "A0" otherwise.
	Fails bool
}

// From says which side a line of a recording comes from.
type From byte

// The sides. Killed and Closed have no text: the process is killed, or its input ends.
const (
	Client From = '>'
	CLI    From = '<'
	Killed From = '!'
	Closed From = '.'
)

// Line is a line of a recording: a message as JSON. Those of the client are in it before the process can receive them, and
// those of the process after it has sent them.
type Line struct {
	From From
	Text string
}

// Accept reports whether the model can say what a recorded CLI said, in its order, when it receives what that one received: a
// model that cannot is wrong. The session is "s1". Accept tries each sequence of the model's steps, and gives one up at its first
// message that is not the recorded one. In the end the model must be at rest, as the CLI was. It runs in a bubble of synctest, in
// which equal steps have equal times.
func Accept(plans []Plan, recording []Line) error {
	a := &acceptor{plans: plans}
	for _, l := range recording {
		if l.From == CLI && unmodelled(l.Text) {
			continue
		}
		a.lines = append(a.lines, l)
	}
	frontier, furthest := []*attempt{a.replay(nil)}, (*attempt)(nil)
	for len(frontier) > 0 {
		var next []*attempt
		for _, before := range frontier {
			for i := range before.choices() {
				at := a.replay(append(slices.Clone(before.chosen), i))
				if furthest == nil || at.line > furthest.line {
					furthest = at
				}
				switch {
				case at.accepted:
					return nil
				case at.wrong == "" && !slices.ContainsFunc(next, at.equals):
					next = append(next, at)
				}
			}
		}
		frontier = next
	}
	return furthest.describe()
}

// skipped are the types of events that the model does not have, each with the reason.
var skipped = map[string]string{
	"agent.interrupted":                 toldElsewhere,
	"assistant.message_delta":           pieces,
	"assistant.message_start":           pieces,
	"assistant.streaming_delta":         pieces,
	"assistant.tool_call_delta":         pieces,
	"assistant.usage":                   numbers,
	"model.call_failure":                modelCalls,
	"model.call_final_result":           modelCalls,
	"model.call_finished":               modelCalls,
	"model.call_start":                  modelCalls,
	"model.log":                         modelCalls,
	"model.message":                     modelCalls,
	"model.messages_snapshot":           modelCalls,
	"model.model_call_failure":          modelCalls,
	"model.model_call_started":          modelCalls,
	"model.model_call_success":          modelCalls,
	"model.response":                    modelCalls,
	"model.telemetry":                   modelCalls,
	"model.tool_execution":              modelCalls,
	"model.turn_ended":                  modelCalls,
	"model.turn_failed":                 modelCalls,
	"model.turn_started":                modelCalls,
	"pending_messages.modified":         toldElsewhere,
	"session.background_tasks_changed":  surroundings,
	"session.indexed_search":            surroundings,
	"session.info":                      surroundings,
	"session.managed_settings_resolved": surroundings,
	"session.mcp_servers_loaded":        surroundings,
	"session.skills_loaded":             surroundings,
	"session.title_changed":             surroundings,
	"session.tools_updated":             surroundings,
	"session.usage_info":                numbers,
	"system.message":                    "the agent's instructions, which begin and end nothing",
}

// The reasons that several types share.
const (
	pieces        = "a part of what assistant.message tells; burst.go has a model of its own"
	modelCalls    = "a detail of a request to the model"
	numbers       = "a number that is shown"
	surroundings  = "what the session has around it; begins and ends nothing"
	toldElsewhere = "follows from an event that the model has"
)

// unmodelled reports whether the model does not have a message of the CLI.
func unmodelled(text string) bool {
	m := read(text)
	_, skip := skipped[m.Params.Event.Type]
	return skip || m.Method != "" && m.Method != "session.event" && m.ID == nil // another notification
}

// message is what the acceptor looks at in a message.
type message struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Event struct {
			ID, Type string
			Data     map[string]any
		}
		Question string
	}
	Result map[string]any
	Error  json.RawMessage
}

func read(text string) (m message) {
	_ = json.Unmarshal([]byte(text), &m) // the CLI or the model has made it
	return m
}

type acceptor struct {
	plans []Plan
	lines []Line
}

// attempt is a run of the model.
type attempt struct {
	*acceptor
	w      *world
	chosen []int
	line   int      // how many lines it has accounted for
	said   [][]byte // what the model has said, and no line yet
	// ids are the model's names of what the recording names, and names the reverse.
	ids, names map[string]string
	accepted   bool
	wrong      string // what the model said instead of the recorded line
}

// endings are in how many ways a process can end (see shutDown).
var endings = map[From]int{Killed: 1, Closed: 8}

// replay makes a run of the model with these choices.
func (a *acceptor) replay(chosen []int) *attempt {
	w := &world{callbacks: map[string]*asking{}, reader: reader{settled: map[string]bool{}, ever: map[journal.ID]bool{}}}
	for n, p := range a.plans {
		w.prompts = append(w.prompts, &prompt{n: n, steps: p.Steps, calls: p.Calls, fails: p.Fails})
	}
	w.cli = newCLI(w)
	at := &attempt{acceptor: a, w: w, chosen: chosen, ids: map[string]string{}, names: map[string]string{}}
	at.advance()
	for _, i := range chosen {
		at.choices()[i]()
		at.said = append(at.said, w.cli.pipe.said()...)
		at.advance()
	}
	at.accepted = at.wrong == "" && at.line == len(a.lines) && len(at.said) == 0 && at.rests()
	return at
}

// choices are what the model can do next: a step of the process, or its end with its input.
func (at *attempt) choices() (all []func()) {
	ends := 0
	if at.line < len(at.lines) {
		ends = endings[at.lines[at.line].From]
	}
	for n := range ends {
		all = append(all, func() { // what the process has said last is lost
			if at.lines[at.line].From == Closed {
				at.w.cli.shutDown(n)
			}
			at.said, at.w.cli = nil, newCLI(at.w)
			at.line++
		})
	}
	for _, step := range at.steps() {
		lots := uint64(1)
		if c := at.w.cli; c.phase == aborting || slices.ContainsFunc(c.requests, func(r request) bool { return drawing[r.method] }) {
			lots = 4
		}
		for lot := range lots {
			all = append(all, func() {
				at.w.drawn = &lot
				step()
			})
		}
	}
	return all
}

// drawing are the methods that the model carries out in several ways (see lot).
var drawing = map[string]bool{"session.create": true, "session.resume": true, rewindMethod: true}

// steps are those of the process. When it writes the record down matters only if it is killed.
func (at *attempt) steps() []func() {
	c := at.w.cli
	steps := c.steps()
	killed := slices.ContainsFunc(at.lines[at.line:], func(l Line) bool { return l.From == Killed })
	if c.worked && c.written < len(c.events) && !killed {
		return steps[:len(steps)-1]
	}
	return steps
}

// rests reports whether the process waits for the client.
func (at *attempt) rests() bool { return len(at.steps()) == 0 }

// advance accounts for the lines that need no step of the model.
func (at *attempt) advance() {
	for at.wrong == "" && at.line < len(at.lines) {
		switch l := at.lines[at.line]; l.From {
		case Client:
			at.w.cli.receive([]byte(at.translate(l.Text)))
		case Killed, Closed:
			return
		case CLI:
			if len(at.said) == 0 {
				return
			}
			recorded := read(l.Text)
			if at.replies(recorded) {
				break
			}
			if at.wrong = at.differs(recorded, read(string(at.said[0]))); at.wrong != "" {
				return
			}
			at.said = at.said[1:]
		}
		at.line++
	}
	if at.wrong == "" && len(at.said) > 0 {
		at.wrong = "the model also says " + string(at.said[0])
	}
}

// replies reports whether a recorded reply is one that the model has made and not sent. The model sends the events of a step at once;
// the CLI sends replies to other requests between them.
func (at *attempt) replies(recorded message) bool {
	c := at.w.cli
	if recorded.Method != "" || read(string(at.said[0])).Method == "" {
		return false
	}
	i := slices.IndexFunc(c.replies, func(text string) bool {
		return text != c.opened.reply && string(read(text).ID) == string(recorded.ID)
	})
	if i < 0 || at.differs(recorded, read(c.replies[i])) != "" {
		return false
	}
	c.replies = slices.Delete(c.replies, i, i+1)
	return true
}

// translate gives a message of the client the model's names.
func (at *attempt) translate(text string) string {
	m := read(text)
	if m.Method == "" { // the reply to a request of the process
		text = strings.Replace(text, `"id":`+string(m.ID), `"id":`+at.ids["request "+string(m.ID)], 1)
	}
	for recorded, id := range at.ids {
		text = strings.ReplaceAll(text, `"`+recorded+`"`, `"`+id+`"`)
	}
	return text
}

// identifiers are the members that name something.
var identifiers = map[string]bool{
	"requestId": true, "toolCallId": true, "messageId": true, "interactionId": true, "upToEventId": true, "question": true,
}

// invented are the members that the model makes up.
var invented = map[string]bool{"eventCount": true, "eventsRemoved": true, "message": true, "turnId": true}

// tools are the model's names of the CLI's own tools.
var tools = map[string]string{"ask_user": string(question)}

// differs says how the model's message differs from a recorded one; "" if it does not.
func (at *attempt) differs(recorded, model message) string {
	of, event := recorded.Params.Event, model.Params.Event
	same := recorded.Method == model.Method && of.Type == event.Type && (recorded.Error == nil) == (model.Error == nil)
	switch {
	case recorded.Method == "": // a reply
		same = same && string(recorded.ID) == string(model.ID) && at.alike(recorded.Result, model.Result)
	case recorded.ID == nil:
		same = same && at.relate(of.ID, event.ID) && at.alike(of.Data, event.Data)
	default:
		same = same && at.relate("request "+string(recorded.ID), string(model.ID)) && at.relate(recorded.Params.Question, model.Params.Question)
	}
	if same {
		return ""
	}
	text, _ := json.Marshal(model) // of JSON
	return "the model says " + string(text)
}

// relate reports whether two names can be of the same thing.
func (at *attempt) relate(recorded, id string) bool {
	known, isKnown := at.ids[recorded]
	name, isNamed := at.names[id]
	at.ids[recorded], at.names[id] = id, recorded
	return recorded != "" && isKnown == isNamed && (!isKnown || known == id && name == recorded)
}

// alike reports whether a recorded object has the members of the model's.
func (at *attempt) alike(recorded, model map[string]any) bool {
	for member, want := range model {
		got := recorded[member]
		same := true
		switch {
		case invented[member]:
		case member == "toolRequests":
			same = (len(elements(got)) > 0) == (len(elements(want)) > 0)
		case member == "events":
			same = at.sameEvents(elements(got), elements(want))
		case member == "items", member == "messageIds":
			same = at.sameItems(elements(got), elements(want))
		case identifiers[member]:
			same = at.relate(fmt.Sprint(got), fmt.Sprint(want))
		case member == "toolName" && tools[fmt.Sprint(got)] != "":
			same = tools[fmt.Sprint(got)] == want
		default:
			if inner, is := want.(map[string]any); is {
				of, _ := got.(map[string]any)
				same = at.alike(of, inner)
			} else {
				same = reflect.DeepEqual(got, want)
			}
		}
		if !same {
			return false
		}
	}
	return true
}

func elements(v any) []any { all, _ := v.([]any); return all }

// sameItems compares lists of names, or of objects.
func (at *attempt) sameItems(recorded, model []any) bool {
	return slices.EqualFunc(recorded, model, func(got, want any) bool {
		if object, is := want.(map[string]any); is {
			of, _ := got.(map[string]any)
			return at.alike(of, object)
		}
		return at.relate(fmt.Sprint(got), fmt.Sprint(want))
	})
}

// sameEvents compares records: each has the events of the other, of the types that the model has, in the same order.
func (at *attempt) sameEvents(recorded, model []any) bool {
	member := func(event any, name string) string {
		object, _ := event.(map[string]any)
		text, _ := object[name].(string)
		return text
	}
	recorded = slices.DeleteFunc(slices.Clone(recorded), func(event any) bool { return skipped[member(event, "type")] != "" })
	return slices.EqualFunc(recorded, model, func(got, want any) bool {
		return member(got, "type") == member(want, "type") && at.relate(member(got, "id"), member(want, "id"))
	})
}

// equals reports whether two runs can go on alike.
func (at *attempt) equals(other *attempt) bool {
	a, b := *at.w.cli, *other.w.cli
	a.w, a.pipe, b.w, b.pipe = nil, nil, nil, nil
	return at.line == other.line && at.w.ids == other.w.ids && len(at.said) == len(other.said) && maps.Equal(at.ids, other.ids) &&
		reflect.DeepEqual(a, b) && reflect.DeepEqual(at.w.disk, other.w.disk)
}

// describe is the error of a recording that the model cannot make.
func (at *attempt) describe() error {
	if at.line == len(at.lines) {
		return fmt.Errorf("the recorded CLI is at rest; %s", at.wrong)
	}
	return fmt.Errorf("line %d of the recording is no run of the model: %s; %s", at.line, at.lines[at.line].Text, at.wrong)
}
