package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

func TestRunCommand(t *testing.T) {
	t.Parallel()
	to := " --target " + server(t)
	for args, want := range map[string]result{
		"run" + to:                             {exitUsage, "", "want PROMPT"},
		"run two words" + to:                   {exitUsage, "", `unexpected argument "words"`},
		"run x --approve some" + to:            {exitUsage, "", "want one of none, reads, all, ask"},
		"run x --allow-tool shell(" + to:       {exitUsage, "", "want KIND or KIND(ARGUMENT)"},
		"run x --approve ask" + to:             {exitUsage, "", "needs a terminal"},
		"run x --timeout -1s" + to:             {exitUsage, "", "negative"},
		"run x --file /none/such" + to:         {exitUsage, "", "--file: stat /none/such"},
		"run x --session s --model m" + to:     {exitUsage, "", "for new sessions"},
		"run -" + to:                           {exitUsage, "", "the prompt is empty"},
		"run x --session none" + to:            {int(exitTurnFailed), "", "NotFound"},
		"run x --target unix:/none":            {int(exitNoServer), "", "No server answers"},
		"run x --target " + guarded(t):         {int(exitRefused), "", "Unauthenticated"},
		"run x --context none --target y" + to: {exitUsage, "", "choose one"},
		"run hello" + to:                       {exitOK, "\n", "session "},
	} {
		expect(t, nil, args, want)
	}
	r := run(t, nil, "from stdin", strings.Fields("run - -o json"+to)...)
	var got runResult
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != exitOK ||
		got.Status != copilot.TurnCompleted || got.SessionID == "" || got.Text == "" {
		t.Errorf("%+v: %v", r, err)
	}
	// The session is disconnected at the end, and continues.
	expect(t, nil, "sessions list --history"+to, result{exitOK, got.SessionID, ""})
	expect(t, nil, "sessions show "+got.SessionID+to,
		result{exitFailed, "", "Open it with: copilot-grpc sessions resume " + got.SessionID})
	expect(t, nil, "run more --session "+got.SessionID+" -o jsonl"+to, result{exitOK, `{"outcome":{"sessionId":"`, ""})
}

func TestRunDecides(t *testing.T) {
	t.Parallel()
	read := &cliv1.PermissionRequest{Variant: &cliv1.PermissionRequest_Read{Read: &cliv1.PermissionRequestRead{Path: "a"}}}
	shell := &cliv1.PermissionRequest{Variant: &cliv1.PermissionRequest_Shell{
		Shell: &cliv1.PermissionRequestShell{FullCommandText: "rm -rf x\x1b[2J"}}}
	for _, tc := range []struct {
		approve, stdin, kind string
		req                  *cliv1.PermissionRequest
		approved, refused    bool
		stderr               string
	}{
		{approveNone, "", "read", read, false, true, "refused: read a\n"},
		{approveReads, "", "read", read, true, false, ""},
		{approveReads, "", "shell", shell, false, true, "refused: run rm -rf x␛[2J\n"},
		{approveAll, "", "shell", shell, true, false, ""},
		{approveAsk, "y\n", "shell", shell, true, false, "The agent wants to run rm -rf x␛[2J\n"},
		{approveAsk, "s\n", "shell", shell, true, false, "yes for the [s]ession"},
		{approveAsk, "what\n", "shell", shell, false, true, ""},
		{approveAsk, "", "shell", shell, false, true, ""},
	} {
		p, _, stderr := newProgram(nil, tc.stdin)
		o := &runOptions{program: p, approve: tc.approve}
		d, err := o.decide(t.Context(), &copilot.PermissionRequest{Kind: tc.kind,
			Data: &cliv1.PermissionRequestedData{PermissionRequest: tc.req}})
		approved := d.GetApproveOnce() != nil || d.GetApproveForSession() != nil
		if err != nil || approved != tc.approved || o.refused.Load() != tc.refused ||
			!strings.Contains(stderr.String(), tc.stderr) {
			t.Errorf("%s, %q: %v, %v, refused %v, %q", tc.approve, tc.stdin, d, err, o.refused.Load(), stderr)
		}
	}
	// What a rule allows is not asked, and the rest is decided as without rules.
	for kind, approved := range map[string]bool{"read": true, "write": false} {
		p, _, stderr := newProgram(nil, "n\n")
		o := &runOptions{program: p, approve: approveAsk, allowed: toolRules{{kind: kind}}}
		d, err := o.decide(t.Context(), &copilot.PermissionRequest{Kind: "read",
			Data: &cliv1.PermissionRequestedData{PermissionRequest: read}})
		if err != nil || (d.GetApproveOnce() != nil) != approved || (stderr.Len() == 0) != approved {
			t.Errorf("with the rule %s: %v, %v, %s", kind, d, err, stderr)
		}
	}
	// A question that another participant has answered is not waited for.
	p, _, _ := newProgram(nil, "")
	o := &runOptions{program: p, approve: approveAsk, answers: make(chan terminal.Line)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	request := &copilot.PermissionRequest{Data: &cliv1.PermissionRequestedData{}}
	if _, err := o.ask(ctx, request); !errors.Is(err, copilot.ErrAbstain) {
		t.Errorf("an answered question: %v", err)
	}
}

// A server that notices the deadline of --timeout first ends the run as the timer here does.
func TestAwaitDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			timeout time.Duration
			code    codes.Code
			waits   bool
		}{
			{time.Second / 2, codes.DeadlineExceeded, true},
			{time.Hour, codes.DeadlineExceeded, false},
			{time.Second / 2, codes.Unavailable, false},
			{time.Second / 2, codes.OK, false},
		} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), tc.timeout, errTimeout)
			var err error
			if tc.code != codes.OK {
				err = status.Error(tc.code, "")
			}
			awaitDeadline(ctx, err)
			if waited := errors.Is(context.Cause(ctx), errTimeout); waited != tc.waits {
				t.Errorf("%v, %v: the context has ended: %v", tc.timeout, tc.code, waited)
			}
			cancel()
		}
	})
}

// What the agent says in an earlier turn is not printed.
func TestTurnBegins(t *testing.T) {
	t.Parallel()
	said := func(id string) *bridgev1.Event {
		message := &cliv1.UserMessageData{Content: "a prompt"}
		switch id {
		case "", "other text":
			message.Content = cmp.Or(id, message.Content)
		default:
			message.MessageId = &id
		}
		return event(&cliv1.SessionEvent{Data: &cliv1.SessionEvent_UserMessage{UserMessage: message}})
	}
	for name, tc := range map[string]struct {
		events []*bridgev1.Event
		begun  []bool
	}{
		"alone": {[]*bridgev1.Event{said("mine"), delta("1", "a")}, []bool{true, true}},
		"after another": {[]*bridgev1.Event{
			delta("0", "x"), said("theirs"), delta("1", "a"), said("mine"), delta("2", "b"),
		}, []bool{false, false, false, true, true}},
		"steered later": {[]*bridgev1.Event{said("mine"), said("theirs"), delta("2", "b")}, []bool{true, true, true}},
		"without an id": {[]*bridgev1.Event{
			delta("0", "x"), said("other text"), delta("1", "a"), said(""), delta("2", "b"),
		}, []bool{false, false, false, true, true}},
	} {
		p := &turnPrinter{prompt: "a prompt", messageID: func() string { return "mine" }}
		for i, one := range tc.events {
			if got := p.begins(one); got != tc.begun[i] {
				t.Errorf("%s: event %d: %v", name, i, got)
			}
		}
	}
}

// Messages end with their line, and text that was streamed is not repeated.
func TestTurnText(t *testing.T) {
	t.Parallel()
	var out, progress bytes.Buffer
	p := &turnPrinter{progress: &progress,
		events: eventPrinter{out: &printer{out: &output{w: &out}, format: formatText}, textOnly: true}}
	sub := message("9", "of a sub-agent")
	sub.Event.AgentId = new("a")
	for _, one := range []*bridgev1.Event{
		delta("1", "a\x1b"), delta("1", "b"), message("1", "a\x1bb"),
		event(&cliv1.SessionEvent{Data: &cliv1.SessionEvent_ToolExecutionStart{
			ToolExecutionStart: &cliv1.ToolExecutionStartData{ToolName: "bash", ArgumentsJson: new("{\n}")}}}),
		sub, message("2", "c\n"), message("3", ""), delta("4", "d"),
	} {
		if err := p.event(one); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.events.out.out.endLine(); err != nil {
		t.Fatal(err)
	}
	if out.String() != "a␛b\nc\nd\n" || progress.String() != "tool bash { }\n" {
		t.Errorf("stdout %q, stderr %q", &out, &progress)
	}
}

// link forwards connections to a server until cut ends it, as the end of the server's process would.
type link struct {
	listener net.Listener
	mu       sync.Mutex
	isCut    bool
	open     []net.Conn
}

func newLink(t *testing.T, target string) (l *link, through string) {
	t.Helper()
	path := socket(t)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l = &link{listener: listener}
	t.Cleanup(l.cut)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", strings.TrimPrefix(target, "unix:"))
			if err != nil || !l.add(c, to) {
				_ = c.Close()
				continue
			}
			go func() { _, _ = io.Copy(to, c); _ = to.Close() }()
			go func() { _, _ = io.Copy(c, to); _ = c.Close() }()
		}
	}()
	return l, "unix:" + path
}

func (l *link) add(pair ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, pair...)
	return !l.isCut
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.listener.Close()
	l.isCut = true
	for _, c := range l.open {
		_ = c.Close()
	}
}

// A run whose server goes away during the turn reconnects, gives up, and says what is known of the turn.
func TestRunLosesItsServer(t *testing.T) {
	t.Parallel()
	target := serverOf(t, fakecli.Script{Prompts: []fakecli.Prompt{{Turns: []fakecli.Turn{{Text: "I begin.\n"}, {Hang: true}}}}})
	for name, tc := range map[string]struct {
		patience time.Duration
		stop     bool
		code     exitError
		want, no string
	}{
		"for good":      {time.Second, false, exitNoServer, "the outcome of the turn is unknown: see \"copilot-grpc events ", "still be"},
		"until stopped": {time.Hour, true, exitAborted, "the turn may still be running: copilot: Unavailable", "aborted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, through := newLink(t, target)
			p, _, _ := newProgram(nil, "")
			out, progress := &watched{lines: make(chan string, 1000)}, &watched{lines: make(chan string, 1000)}
			p.stdout, p.stderr, p.patience = &output{w: out}, progress, tc.patience
			f := newFlags("run", "", "")
			o := newRun(p, f)
			if err := f.parse(p, []string{"--target", through}); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- o.start(ctx, []string{"Hello"}) }()
			<-out.lines
			l.cut()
			var said strings.Builder
			for !strings.Contains(said.String(), "reconnecting for up to "+setting.Short(tc.patience)) {
				said.WriteString(<-progress.lines)
			}
			if tc.stop {
				stop()
			}
			err := <-ended
			for len(progress.lines) > 0 {
				said.WriteString(<-progress.lines)
			}
			if text := said.String(); !errors.Is(err, tc.code) || !strings.Contains(text, tc.want) ||
				strings.Contains(text, tc.no) || strings.Contains(text, "not left") || strings.Count(text, "reconnecting") != 1 {
				t.Errorf("%v: %s", err, text)
			}
		})
	}
}

// A turn that could not be aborted is not said to be.
func TestRunTimesOutWithoutServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTimeout)
	for want, failed := range map[string]error{
		"the turn was aborted after 1m0s\n":                            nil,
		"1m0s have passed; the turn may still be running: no server\n": errors.New("no server"),
	} {
		p, _, stderr := newProgram(nil, "")
		o := &runOptions{program: p, timeout: time.Minute, abortFailed: failed}
		if err := o.failed(ctx, errTimeout); !errors.Is(err, exitTimedOut) || stderr.String() != want {
			t.Errorf("%v, %q, want %q", err, stderr, want)
		}
	}
}
