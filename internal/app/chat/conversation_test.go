package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/clients/go/view"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

func at(seq uint64) *bridgev1.Position { return &bridgev1.Position{Epoch: 1, Seq: seq} }

// permission is a permission that waits.
func permission(id string) *bridgev1.Callback {
	return &bridgev1.Callback{CallbackId: id, Request: &bridgev1.Callback_Permission{
		Permission: &cliv1.PermissionRequestedData{PermissionRequest: &cliv1.PermissionRequest{
			Variant: &cliv1.PermissionRequest_Shell{Shell: &cliv1.PermissionRequestShell{FullCommandText: "date"}},
		}},
	}}
}

// views are steps of a turn with a permission.
func idle() view.View { return view.View{CaughtUp: true} }

func running(items ...view.Item) view.View {
	return view.View{CaughtUp: true, Items: items, Turn: view.Turn{Running: true}}
}

func asking(ids ...string) view.View {
	v := running()
	for _, id := range ids {
		v.Pending = append(v.Pending, permission(id))
	}
	return v
}

func ended(status bridgev1.TurnStatus, end uint64, items ...view.Item) view.View {
	v := idle()
	v.Items = items
	v.Turn.Outcome = &bridgev1.TurnOutcome{Status: status, EndPosition: at(end)}
	return v
}

func prompt(id, text string) view.User { return view.User{Head: view.Head{Key: id}, Text: text} }

// resolved is a callback that ended, answered by somebody.
func resolved(id, by string) *bridgev1.CallbackResolved {
	return &bridgev1.CallbackResolved{
		CallbackId: id, AnsweredBy: by, Outcome: bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED,
	}
}

// step is something that happens to a conversation.
type step func(c *Conversation) []Effect

func sees(v view.View) step {
	return func(c *Conversation) []Effect { c.Take(Update{View: v}); return nil }
}

func hears(u Update) step {
	return func(c *Conversation) []Effect { u.View = c.View; c.Take(u); return nil }
}

func types(text string) step {
	return func(c *Conversation) []Effect {
		effects, err := c.Submit(text, false)
		if err != nil {
			c.note(view.Error, err.Error())
		}
		return effects
	}
}

func steers(text string) step {
	return func(c *Conversation) []Effect { effects, _ := c.Submit(text, true); return effects }
}

func interrupts(c *Conversation) []Effect { return c.Interrupt() }

func finishes(r Result) step {
	return func(c *Conversation) []Effect { c.Finished(r); return nil }
}

// told are effects in words.
func told(effects []Effect) (all []string) {
	for _, e := range effects {
		switch e := e.(type) {
		case Send:
			line := fmt.Sprintf("send %q now=%v", e.Text, e.Immediately)
			if len(e.Files) > 0 {
				line += fmt.Sprintf(" files=%q", e.Files)
			}
			all = append(all, line)
		case Resolve:
			all = append(all, "resolve "+e.CallbackID)
		default:
			all = append(all, fmt.Sprintf("%T%v", e, e))
		}
	}
	return all
}

func TestConversation(t *testing.T) {
	t.Parallel()
	late := &copilot.Error{Code: codes.FailedPrecondition, Reason: copilot.ReasonCallbackResolved, Message: "resolved"}
	refused := &copilot.Error{Code: codes.Unavailable, Message: "no server"}
	missing := errors.New("no such file")
	checked := func(path string, err error) step {
		return finishes(Result{Effect: CheckFile{path}, Err: err, Text: "The next prompt has the file " + path})
	}
	accepted := finishes(Result{Effect: Send{Text: "hi"}, MessageID: "m1", Position: at(5)})
	completed := bridgev1.TurnStatus_TURN_STATUS_COMPLETED
	answeredA := Resolve{CallbackID: "a"}
	const approved = "Approved: Run a command"
	for name, tc := range map[string]struct {
		steps []step
		// The effects of all steps, the notes, the queued prompts, whether the conversation is busy, and the callback
		// that is asked, at the end.
		effects, notes, queued []string
		busy                   bool
		asked                  string
	}{
		"a prompt": {[]step{sees(idle()), types(" hi ")}, []string{`send "hi" now=false`}, nil, nil, true, ""},
		"an accepted prompt": {[]step{sees(idle()), types("hi"), accepted},
			[]string{`send "hi" now=false`}, nil, []string{"hi"}, true, ""},
		"a turn": {[]step{sees(idle()), types("hi"), accepted, sees(running(prompt("m1", "hi"))),
			sees(ended(completed, 9, prompt("m1", "hi")))}, []string{`send "hi" now=false`}, nil, nil, false, ""},
		"a turn in one view": {[]step{sees(idle()), types("hi"), accepted,
			sees(ended(completed, 9, prompt("m1", "hi")))}, []string{`send "hi" now=false`}, nil, nil, false, ""},
		"a turn before the reply": {[]step{sees(idle()), types("hi"),
			sees(ended(completed, 9, prompt("m1", "hi"))), accepted}, []string{`send "hi" now=false`}, nil, nil, false, ""},
		"a turn of a CLI without ids": {[]step{sees(idle()), types("hi"), accepted,
			sees(running(view.User{Head: view.Head{Key: "event", Position: at(6)}, Text: "hi"}))},
			[]string{`send "hi" now=false`}, nil, nil, true, ""},
		"the same text before": {[]step{sees(idle()), types("hi"), accepted,
			sees(running(view.User{Head: view.Head{Key: "event", Position: at(4)}, Text: "hi"}))},
			[]string{`send "hi" now=false`}, nil, []string{"hi"}, true, ""},
		"an older turn ends": {[]step{sees(running()), types("hi"), accepted, sees(ended(completed, 4))},
			[]string{`send "hi" now=false`}, nil, []string{"hi"}, false, ""},
		"a failed prompt": {[]step{sees(idle()), types("hi"), finishes(Result{Effect: Send{Text: "hi"}, Err: refused})},
			[]string{`send "hi" now=false`}, []string{"The prompt was not sent: no server\nhi"}, nil, false, ""},
		"a turn that fails": {[]step{sees(idle()), sees(ended(bridgev1.TurnStatus_TURN_STATUS_FAILED, 9))}, nil,
			[]string{"The turn ended: failed"}, nil, false, ""},
		"an old turn that failed": {[]step{sees(view.View{Turn: view.Turn{Outcome: &bridgev1.TurnOutcome{
			Status: bridgev1.TurnStatus_TURN_STATUS_FAILED}}})}, nil, nil, nil, false, ""},
		"the server comes back without the turn": {[]step{sees(idle()), types("hi"), accepted,
			hears(Update{Restored: true})}, []string{`send "hi" now=false`}, nil, []string{"hi"}, false, ""},
		"steer":            {[]step{sees(running()), steers("stop")}, []string{`send "stop" now=true`}, nil, nil, true, ""},
		"steer by command": {[]step{sees(asking("a")), types("/now stop")}, []string{`send "stop" now=true`}, nil, nil, true, "a"},
		"steer past a question": {[]step{sees(asking("a")), steers("y")},
			[]string{`send "y" now=true`}, nil, nil, true, "a"},
		"approve": {[]step{sees(asking("a")), types("y"), finishes(Result{Effect: answeredA}),
			hears(Update{Resolved: []*bridgev1.CallbackResolved{resolved("a", "me")}})},
			[]string{"resolve a"}, []string{approved}, nil, true, "a"}, // the view still has it
		"approve, told before the reply": {[]step{sees(asking("a")), types("y"),
			hears(Update{Resolved: []*bridgev1.CallbackResolved{resolved("a", "me")}}), sees(running()),
			finishes(Result{Effect: answeredA})}, []string{"resolve a"}, []string{approved}, nil, true, ""},
		"two wait": {[]step{sees(asking("a", "b")), types("n")}, []string{"resolve a"}, []string{"Refused: Run a command"}, nil, true, "b"},
		"the other was first": {[]step{sees(asking("a")), types("y"),
			hears(Update{Resolved: []*bridgev1.CallbackResolved{resolved("a", "ann")}}), sees(running()),
			finishes(Result{Effect: answeredA, Err: late})}, []string{"resolve a"},
			[]string{approved, "Your answer came too late: answered by ann"}, nil, true, ""},
		"the other was first, told later": {[]step{sees(asking("a")), types("y"),
			finishes(Result{Effect: answeredA, Err: late}), sees(running()),
			hears(Update{Resolved: []*bridgev1.CallbackResolved{resolved("a", "ann")}})}, []string{"resolve a"},
			[]string{approved, "Your answer came too late: answered by ann"}, nil, true, ""},
		"notes left out": {[]step{sees(idle()), hears(Update{LeftOut: 3, Notes: []Note{{Text: "newest"}}})}, nil,
			[]string{"… notes left out: 3", "newest"}, nil, false, ""},
		"the other was first, left out": {[]step{sees(asking("a", "b")), types("y"), sees(asking("b")),
			hears(Update{LeftOut: 1}), finishes(Result{Effect: answeredA, Err: late})}, []string{"resolve a"},
			[]string{approved, "… notes left out: 1", "Your answer came too late: how the question ended was left out"}, nil, true, "b"},
		"an open question, others left out": {[]step{sees(asking("a")), types("y"), hears(Update{LeftOut: 1}),
			finishes(Result{Effect: answeredA, Err: late}), sees(running()),
			hears(Update{Resolved: []*bridgev1.CallbackResolved{resolved("a", "ann")}})}, []string{"resolve a"},
			[]string{approved, "… notes left out: 1", "Your answer came too late: answered by ann"}, nil, true, ""},
		"another answered": {[]step{sees(asking("a")), sees(running()),
			hears(Update{Resolved: []*bridgev1.CallbackResolved{resolved("a", "")}})}, nil,
			[]string{"The question is no longer open: answered by another program"}, nil, true, ""},
		"an answer that fails": {[]step{sees(asking("a")), types("y"), finishes(Result{Effect: answeredA, Err: refused})},
			[]string{"resolve a"}, []string{approved, "The answer was not taken: no server"}, nil, true, "a"},
		"no decision": {[]step{sees(asking("a")), types("perhaps")}, nil, []string{"y approves once, s for the session, " +
			"n refuses and ends the turn, n WHY refuses and tells the agent why"}, nil, true, "a"},
		"abort":           {[]step{sees(running()), interrupts}, []string{"chat.Abort{}"}, nil, nil, true, ""},
		"abort and leave": {[]step{sees(running()), interrupts, interrupts}, []string{"chat.Abort{}", "chat.Leave{}"}, nil, nil, true, ""},
		"leave":           {[]step{sees(idle()), interrupts, interrupts}, []string{"chat.Leave{}"}, nil, nil, false, ""},
		"stay": {[]step{sees(idle()), interrupts, func(c *Conversation) []Effect { c.Typed(); return nil }, interrupts},
			nil, nil, nil, false, ""},
		"an aborted turn takes its queue along": {[]step{sees(running()), types("hi"), accepted,
			sees(ended(bridgev1.TurnStatus_TURN_STATUS_ABORTED, 9))}, []string{`send "hi" now=false`},
			[]string{"The turn was aborted."}, nil, false, ""},
		"a path":      {[]step{sees(idle()), types("/etc/hosts is what?")}, []string{`send "/etc/hosts is what?" now=false`}, nil, nil, true, ""},
		"two slashes": {[]step{sees(idle()), types("//help me")}, []string{`send "/help me" now=false`}, nil, nil, true, ""},
		"no such command": {[]step{sees(idle()), types("/hlep")}, nil, []string{
			"there is no command /hlep; did you mean /help?"}, nil, false, ""},
		"nothing like a command": {[]step{sees(idle()), types("/nothing")}, nil, []string{
			"there is no command /nothing; /help lists them"}, nil, false, ""},
		"a command without its argument": {[]step{sees(idle()), types("/share")}, nil, []string{"/share needs TENANT"}, nil, false, ""},
		"a command with too much":        {[]step{sees(idle()), types("/quit now")}, nil, []string{`/quit takes nothing, not "now"`}, nil, false, ""},
		"model":                          {[]step{sees(idle()), types("/model gpt-5")}, []string{"chat.SetModel{gpt-5}"}, nil, nil, false, ""},
		"attach": {[]step{sees(idle()), types("/attach a b.txt"), checked("a b.txt", nil), types("/attach '~/c'"), types("hi"),
			types("ho")}, []string{"chat.CheckFile{a b.txt}", "chat.CheckFile{~/c}", `send "hi" now=false files=["a b.txt" "~/c"]`,
			`send "ho" now=false`}, []string{"The next prompt has the file a b.txt"}, nil, true, ""},
		"attach a file that is missing": {[]step{sees(idle()), types("/attach a"), types("/attach b"), checked("a", missing),
			types("hi")}, []string{"chat.CheckFile{a}", "chat.CheckFile{b}", `send "hi" now=false files=["b"]`},
			[]string{"The file is not attached: no such file"}, nil, true, ""},
		"attach none": {[]step{sees(idle()), types("/attach a"), types("/attach"), types("hi")},
			[]string{"chat.CheckFile{a}", `send "hi" now=false`}, []string{"The next prompt has no files."}, nil, true, ""},
		"a failed prompt with a file": {[]step{sees(idle()),
			func(c *Conversation) []Effect { c.sending++; return nil },
			finishes(Result{Effect: Send{Text: "hi", Files: []string{"a"}}, Err: refused})}, nil,
			[]string{"The prompt was not sent: no server\nhi\n[file a]"}, nil, false, ""},
		"files":   {[]step{sees(idle()), types("/files")}, []string{"chat.ShowFiles{}"}, nil, nil, false, ""},
		"fork":    {[]step{sees(running()), types("/fork my way")}, []string{"chat.Fork{my way}"}, nil, nil, true, ""},
		"nothing": {[]step{sees(idle()), types("  ")}, nil, nil, nil, false, ""},
		"a closed session": {[]step{sees(view.View{Closed: bridgev1.CloseReason_CLOSE_REASON_DELETED}), types("hi")}, nil,
			[]string{"the session is closed; leave with /quit"}, nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c Conversation
			var effects []Effect
			for _, s := range tc.steps {
				effects = append(effects, s(&c)...)
			}
			if got := told(effects); !slices.Equal(got, tc.effects) {
				t.Errorf("effects %q, want %q", got, tc.effects)
			}
			var notes, queued []string
			for _, n := range c.Notes {
				notes = append(notes, n.Text)
			}
			for _, p := range c.Queued {
				queued = append(queued, p.Text)
			}
			if !slices.Equal(notes, tc.notes) || !slices.Equal(queued, tc.queued) || c.IsBusy() != tc.busy {
				t.Errorf("notes %q, queued %q, busy %v; want %q, %q, %v", notes, queued, c.IsBusy(), tc.notes, tc.queued,
					tc.busy)
			}
			asked := ""
			if cb, _, ok := c.Question(); ok {
				asked = cb.GetCallbackId()
			}
			if asked != tc.asked {
				t.Errorf("%q is asked, want %q", asked, tc.asked)
			}
		})
	}
}

func TestHelpListsCommands(t *testing.T) {
	t.Parallel()
	for _, c := range commands() {
		if !strings.Contains(help(), "/"+c.name) {
			t.Errorf("/%s is missing", c.name)
		}
	}
}
