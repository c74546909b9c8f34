package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/clients/go/view"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app/ask"
)

// Conversation is the state of a chat. It is not safe for concurrent use.
type Conversation struct {
	// The session, as its frames tell it.
	View view.View
	// What this program has said about the chat, in the order of the timeline.
	Notes []Note
	// Prompts of this person that the agent has not begun with.
	Queued []Prompt
	// Files of this machine that the next prompt has.
	Attached []string

	// Prompts on their way to the server.
	sending int
	// Prompts on their way to the server, and those that have not reached it.
	unsent []string
	// The position at which the last prompt was accepted, while the turn that answers it has not ended.
	awaiting *bridgev1.Position
	// The connection came back: a turn that is not running now will not come.
	restored bool
	// Ctrl-C was the last input.
	interrupted bool
	// Answers of this person, by callback, until the server has both replied and said how the callback ended.
	answers map[string]*myAnswer
}

type myAnswer struct {
	// The server's reply: it was taken, or another one was before it.
	taken, late bool
	// How the callback ended, in words; empty until the server says it.
	how string
}

// Note is a line of this program in the timeline.
type Note struct {
	// How many items of the view come before it.
	After int
	Level view.Level
	// It may have several lines. Parts that come from the agent are not clean.
	Text string
}

// Prompt is a prompt that the server has accepted.
type Prompt struct {
	MessageID, Text string
	// Accepted is the position at which the CLI accepted the prompt.
	Accepted *bridgev1.Position
}

// isShownAs reports whether the timeline has the prompt as a message. The messages of a CLI older
// than 1.0.83 have no ids: there the text and the position tell.
func (p Prompt) isShownAs(m view.User) bool {
	return m.Key == p.MessageID || m.Text == p.Text && copilot.ComparePositions(m.Position, p.Accepted) > 0
}

// maxPending bounds each list of an update that a stalled terminal does not take. It is more than a screen shows.
const maxPending = 100

// Update is what a session's stream says since the last update.
type Update struct {
	View view.View
	// Callbacks that ended, and notes: the newest, at most maxPending of each.
	Resolved []*bridgev1.CallbackResolved
	Notes    []Note
	// How many older ones of both are left out.
	LeftOut int
	// The connection came back.
	Restored bool
	// Why no server answers any more; nil while one does, or may.
	Lost error
}

// Take takes what the stream says.
func (c *Conversation) Take(u Update) {
	before := c.View.Turn
	c.View = u.View
	after := c.View.Turn
	c.restored = c.restored || u.Restored
	if before.Running && !after.Running || c.restored && !after.Running || c.isClosed() {
		c.awaiting = nil
	}
	if after.Running {
		c.restored = false
	}
	c.endWaits()
	if u.LeftOut > 0 {
		c.note(view.Warning, fmt.Sprintf("… notes left out: %d", u.LeftOut))
	}
	for _, n := range u.Notes {
		c.note(n.Level, n.Text)
	}
	for _, r := range u.Resolved {
		c.resolved(r)
	}
	if u.LeftOut > 0 {
		c.endUnknown()
	}
	if outcome := after.Outcome; outcome != nil && outcome != before.Outcome && u.View.CaughtUp {
		c.ended(outcome)
	}
}

// endWaits ends the waits of prompts for what has happened already: a turn may begin and end before the reply to its
// prompt arrives.
func (c *Conversation) endWaits() {
	if end := c.View.Turn.Outcome.GetEndPosition(); copilot.ComparePositions(end, c.awaiting) > 0 {
		c.awaiting = nil
	}
	c.Queued = slices.DeleteFunc(c.Queued, func(p Prompt) bool {
		return slices.ContainsFunc(c.View.Items, func(i view.Item) bool {
			user, ok := i.(view.User)
			return ok && p.isShownAs(user)
		})
	})
}

func (c *Conversation) isClosed() bool {
	return c.View.Closed != bridgev1.CloseReason_CLOSE_REASON_UNSPECIFIED
}

// ended notes a turn that did not complete.
func (c *Conversation) ended(outcome *bridgev1.TurnOutcome) {
	out := copilot.Outcome{Proto: outcome}
	switch out.Status() {
	case copilot.TurnCompleted:
		return
	case copilot.TurnAborted:
		c.Queued = nil
		c.note(view.Warning, "The turn was aborted.")
	default:
		text := "The turn ended: " + strings.ReplaceAll(string(out.Status()), "_", " ")
		if e := out.Error(); e != nil && !c.isShown(e.GetMessage()) {
			text += ": " + e.GetMessage()
		}
		c.note(view.Error, text)
	}
}

// isShown reports whether the CLI has just said a text itself.
func (c *Conversation) isShown(text string) bool {
	if len(c.View.Items) == 0 {
		return false
	}
	last, ok := c.View.Items[len(c.View.Items)-1].(view.Notice)
	return ok && strings.Contains(last.Text, text)
}

// resolved notes how a callback ended that others have answered.
func (c *Conversation) resolved(r *bridgev1.CallbackResolved) {
	mine := c.answers[r.GetCallbackId()]
	if mine == nil {
		c.note(view.Info, "The question is no longer open: "+ask.HowEnded(r))
		return
	}
	mine.how = ask.HowEnded(r)
	c.concluded(r.GetCallbackId())
}

// endUnknown concludes answers of this person whose callbacks have ended in a note that was left out.
func (c *Conversation) endUnknown() {
	for id, mine := range c.answers {
		waits := slices.ContainsFunc(c.View.Pending, func(cb *bridgev1.Callback) bool { return cb.GetCallbackId() == id })
		if !waits && mine.how == "" {
			mine.how = "how the question ended was left out"
			c.concluded(id)
		}
	}
}

// concluded ends the wait for an answer when both its reply and the end of its callback are known.
func (c *Conversation) concluded(id string) {
	mine := c.answers[id]
	if mine.how == "" || !mine.taken && !mine.late {
		return
	}
	if mine.late {
		c.note(view.Warning, "Your answer came too late: "+mine.how)
	}
	delete(c.answers, id)
}

// IsBusy reports whether a turn is running or about to.
func (c *Conversation) IsBusy() bool {
	return c.View.Turn.Running || c.awaiting != nil || c.sending > 0
}

// Question returns the oldest callback that waits for a person, unless an answer is under way.
func (c *Conversation) Question() (*bridgev1.Callback, ask.Question, bool) {
	for _, cb := range c.View.Pending {
		if _, answered := c.answers[cb.GetCallbackId()]; answered {
			continue
		}
		if q := ask.Of(cb); q.Form != ask.Other && cb.GetToolCall() == nil {
			return cb, q, true
		}
	}
	return nil, ask.Question{}, false
}

// errClosed refuses what needs the session.
var errClosed = errors.New("the session is closed; leave with /quit")

// Submit takes what a person has typed: a command, an answer to the question, or a prompt. At once, a prompt steers the
// running turn instead of waiting for its end, also while a question is open. After an error nothing has happened.
func (c *Conversation) Submit(text string, atOnce bool) ([]Effect, error) {
	text = strings.TrimSpace(text)
	c.interrupted = false
	if text == "" {
		return nil, nil
	}
	if name, arg, ok := commandIn(text); ok {
		return c.command(name, arg)
	}
	if cb, q, ok := c.Question(); ok && !atOnce {
		reply, err := q.Parse(text)
		if err != nil {
			return nil, err
		}
		answer, err := q.Answer(reply)
		if err != nil {
			return nil, err
		}
		if c.answers == nil {
			c.answers = map[string]*myAnswer{}
		}
		c.answers[cb.GetCallbackId()] = &myAnswer{}
		c.note(view.Info, said(q, reply)) // now: what the agent makes of it comes below
		return []Effect{Resolve{CallbackID: cb.GetCallbackId(), Answer: answer}}, nil
	}
	if c.isClosed() {
		return nil, errClosed
	}
	if strings.HasPrefix(text, "//") { // a prompt that begins like a command
		text = text[1:]
	}
	return c.prompt(text, atOnce), nil
}

func (c *Conversation) prompt(text string, atOnce bool) []Effect {
	c.sending++
	c.unsent = append(c.unsent, text)
	files := c.Attached
	c.Attached = nil
	return []Effect{Send{Text: text, Immediately: atOnce, Files: files}}
}

// said is a decision for the timeline.
func said(q ask.Question, r ask.Reply) string {
	switch r.Action {
	case ask.Approve:
		return "Approved: " + q.Title
	case ask.ApproveForSession:
		return "Approved for the session: " + q.Title
	case ask.Deny:
		if r.Text != "" {
			return "Refused: " + q.Title + " (" + r.Text + ")"
		}
		return "Refused: " + q.Title
	default:
		return "Answered: " + r.Text
	}
}

// Interrupt is Ctrl-C: the first aborts the turn, the second leaves.
func (c *Conversation) Interrupt() []Effect {
	if c.interrupted {
		return []Effect{Leave{}}
	}
	c.interrupted = true
	if c.IsBusy() {
		return []Effect{Abort{}}
	}
	return nil
}

// WillLeave reports whether the next Ctrl-C leaves.
func (c *Conversation) WillLeave() bool { return c.interrupted }

// Typed ends the effect of a first Ctrl-C.
func (c *Conversation) Typed() { c.interrupted = false }

// Finished takes the result of an effect.
func (c *Conversation) Finished(r Result) {
	switch e := r.Effect.(type) {
	case Send:
		c.sent(e, r)
	case Resolve:
		c.answered(e, r)
	case CheckFile:
		c.checked(e, r)
	case Keep:
		if r.Err != nil {
			c.note(view.Warning, "Inputs are not kept for later chats: "+words(r.Err))
		}
	case Abort:
		if r.Err != nil {
			c.note(view.Error, "The turn cannot be aborted: "+words(r.Err))
		}
	default:
		if r.Err != nil {
			c.note(view.Error, words(r.Err))
		} else if r.Text != "" {
			c.note(view.Info, r.Text)
		}
	}
}

// checked takes a file that cannot be attached away from the next prompt.
func (c *Conversation) checked(e CheckFile, r Result) {
	if r.Err == nil {
		c.note(view.Info, r.Text)
		return
	}
	c.Attached = slices.DeleteFunc(c.Attached, func(path string) bool { return path == e.Path })
	c.note(view.Error, "The file is not attached: "+words(r.Err))
}

func (c *Conversation) sent(e Send, r Result) {
	c.sending--
	if r.Err != nil {
		text := e.Text
		for _, path := range e.Files {
			text += "\n[file " + path + "]"
		}
		c.note(view.Error, fmt.Sprintf("The prompt was not sent: %s\n%s", words(r.Err), text))
		return
	}
	c.awaiting = r.Position
	if i := slices.Index(c.unsent, e.Text); i >= 0 {
		c.unsent = slices.Delete(c.unsent, i, i+1)
	}
	c.Queued = append(c.Queued, Prompt{r.MessageID, e.Text, r.Position})
	c.endWaits()
}

func (c *Conversation) answered(e Resolve, r Result) {
	switch {
	case r.Err == nil:
		c.answers[e.CallbackID].taken = true
	case copilot.IsReason(r.Err, copilot.ReasonCallbackResolved):
		c.answers[e.CallbackID].late = true
	default:
		delete(c.answers, e.CallbackID) // asks again, if the callback still waits
		c.note(view.Error, "The answer was not taken: "+words(r.Err))
		return
	}
	c.concluded(e.CallbackID)
}

func (c *Conversation) note(level view.Level, text string) {
	c.Notes = append(c.Notes, Note{len(c.View.Items), level, text})
}
