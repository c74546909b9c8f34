package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// inbox runs the command as a script does.
func inbox(d *harness.Daemon, args ...string) (stdout, stderr string, code int) {
	d.T.Helper()
	program, err := harness.Program()
	if err != nil {
		d.T.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(d.Ctx, program, append([]string{"inbox"}, args...)...)
	cmd.Env = append(cmd.Environ(), "COPILOT_GRPC_TARGET=unix:"+filepath.Join(d.Root, "s"))
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the code says it
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// asks begins a turn that asks, in a new session that waits for answers, and returns the callback.
func asks(d *harness.Daemon, prompt string) *copilot.Callback {
	d.T.Helper()
	s, err := d.Client.CreateSession(d.Ctx, copilot.SessionOptions{SessionHandlers: &bridgev1.Handlers{
		Permission: true, Kinds: []bridgev1.CallbackKind{bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT},
	}})
	if err != nil {
		d.T.Fatal(err)
	}
	if _, err := s.Send(d.Ctx, prompt); err != nil {
		d.T.Fatal(err)
	}
	var found *copilot.Callback
	d.Eventually("the question of "+prompt, func() bool {
		pending, err := s.Pending(d.Ctx)
		if err == nil && len(pending) > 0 {
			found = pending[0]
		}
		return found != nil
	})
	return found
}

// ends waits for the end of the session's turn, and returns the agent's last text.
func ends(d *harness.Daemon, cb *copilot.Callback) (text string) {
	d.T.Helper()
	s := d.Client.Session(cb.SessionID)
	d.Eventually("the end of the turn", func() bool {
		info, err := s.Get(d.Ctx)
		return err == nil && !info.Proto.GetTurnRunning()
	})
	for ev, err := range s.History(d.Ctx, copilot.OfTypes("assistant.message")) {
		if err != nil {
			d.T.Fatal(err)
		}
		text = ev.GetEvent().GetAssistantMessage().GetContent()
	}
	return text
}

// A script lists what waits, and answers it.
func TestInboxOfScripts(t *testing.T) {
	t.Parallel()
	d := newServer(t)
	if out, errs, code := inbox(d, "list"); out != "" || !strings.Contains(errs, "Nothing waits") || code != 0 {
		t.Errorf("an empty inbox: code %d, %q, %q", code, out, errs)
	}
	command, refused, question := asks(d, "run echo one"), asks(d, "run echo two"), asks(d, "ask me")
	out, _, code := inbox(d, "list")
	for _, want := range []string{command.ID, command.SessionID, "permission", "Run a command: echo one", "echo two", "Which colour?"} {
		if !strings.Contains(out, want) || code != 0 {
			t.Errorf("code %d: %q is missing in\n%s", code, want, out)
		}
	}
	out, _, _ = inbox(d, "list", "-o", "jsonl")
	found := map[string]bool{}
	for line := range strings.Lines(out) {
		var cb struct{ CallbackID, SessionID, Kind string }
		if err := json.Unmarshal([]byte(line), &cb); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		found[cb.CallbackID+" "+cb.SessionID] = true
	}
	for _, cb := range []*copilot.Callback{command, refused, question} {
		if !found[cb.ID+" "+cb.SessionID] {
			t.Errorf("%s of %s is missing in %s", cb.ID, cb.SessionID, out)
		}
	}
	if _, errs, code := inbox(d, "answer", question.ID, "--approve"); code != 1 || !strings.Contains(errs, "type a number from 1 to 2") {
		t.Errorf("a decision about a question: code %d, %s", code, errs)
	}
	for _, tc := range []struct {
		of   *copilot.Callback
		args []string
		want string
	}{
		{command, []string{"--approve"}, "It came to: one"},
		{refused, []string{"--deny", "--feedback", "use printf"}, "use printf"},
		{question, []string{"--answer", "2"}, "blue"},
	} {
		out, errs, code := inbox(d, append([]string{"answer", tc.of.ID}, tc.args...)...)
		if text := ends(d, tc.of); code != 0 || !strings.HasPrefix(out, "answered: ") || !strings.Contains(text, tc.want) {
			t.Errorf("%q: code %d, %q, %q; the agent says %q", tc.args, code, out, errs, text)
		}
	}
	if _, errs, code := inbox(d, "answer", command.ID, "--deny"); code != 1 || !strings.Contains(errs, "it may have been answered") {
		t.Errorf("an answer that is too late: code %d, %s", code, errs)
	}
}

// A person watches the inbox, in which questions of several sessions come up, and answers them there; one that others
// answer is closed.
func TestInboxLive(t *testing.T) {
	t.Parallel()
	p := sits(newServer(t), 80, 24)
	p.types("copilot-grpc inbox")
	p.waits("Waiting for questions")
	first := asks(p.Daemon, "run echo one")
	p.waits("[1] Run a command", first.SessionID, "| echo one", "y approves once")
	p.types("perhaps")
	p.waits("perhaps", "y approves once")
	second := asks(p.Daemon, "ask me")
	p.waits("[2] Which colour?", "1. red", "2. blue")
	p.types("y")
	p.waits("2 questions wait: put the number first")
	p.types("2: 1")
	p.waits("[2] is closed: answered by")
	if text := ends(p.Daemon, second); !strings.Contains(text, "red") {
		t.Errorf("the agent says %q", text)
	}
	if _, errs, code := inbox(p.Daemon, "answer", first.ID, "--approve-for-session"); code != 0 {
		t.Fatalf("code %d: %s", code, errs)
	}
	p.waits("[1] is closed: answered by")
	p.presses("C-c")
	p.waits("^C", "@")
	p.types("echo exit $?")
	p.waits("exit 0")
}

// Two people answer the same question at once, one of them in the inbox, or with its command: the first answer counts, and
// the other person sees that theirs came too late, and who was first.
func TestInboxIsTooLate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		watches bool
		answer  string
		want    []string
	}{
		"live": {true, "n too slow", []string{"[1] is closed: answered by socket", "[1] your answer came too late"}},
		"command": {false, "copilot-grpc inbox answer %s --deny --feedback 'too slow'; echo exit $?", []string{
			"copilot-grpc inbox: your answer came too late: answered by socket", "exit 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := sits(newServer(t), 80, 24)
			asked, way := asks(p.Daemon, "run echo one"), newDetour(p.Daemon, "too slow")
			p.types("export COPILOT_GRPC_TARGET=unix:" + way.path)
			if tc.watches {
				p.types("copilot-grpc inbox")
				p.waits("[1] Run a command")
				p.types(tc.answer)
			} else {
				p.types(fmt.Sprintf(tc.answer, asked.ID))
			}
			<-way.held
			if _, errs, code := inbox(p.Daemon, "answer", asked.ID, "--approve"); code != 0 {
				t.Fatalf("code %d: %s", code, errs)
			}
			close(way.release)
			p.waits(tc.want...)
			if text := ends(p.Daemon, asked); !strings.HasPrefix(text, "It came to: one\n") {
				t.Errorf("the agent says %q", text)
			}
			if !tc.watches {
				return
			}
			asks(p.Daemon, "ask me")
			p.waits("[2] Which colour?")
			p.types("2")
			p.waits("[2] is closed: answered by socket")
			p.presses("C-c")
			p.waits("^C", "@")
		})
	}
}

// The server is killed while a person watches the inbox, which says so, and goes on when the server is back.
func TestInboxOutlivesTheServer(t *testing.T) {
	t.Parallel()
	p := sits(newServer(t), 80, 24)
	p.types("copilot-grpc inbox")
	first := asks(p.Daemon, "run echo one")
	p.waits("[1] Run a command", first.SessionID)
	p.Stop(syscall.SIGKILL)
	p.waits("broken", "reconnecting for up to 2m")
	p.Start()
	p.waits("reconnected")
	second := asks(p.Daemon, "ask me")
	p.matches(`\[\d+\] Which colour\?(?s:.*)` + second.SessionID)
}
