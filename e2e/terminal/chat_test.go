package terminal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// A person has a conversation: a streamed answer, a permission approved and one refused, a question, and a turn aborted;
// they leave, come back, and everything is there. The terminal is then as it was before.
func TestChat(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{80, 24}, {160, 50}} {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			t.Parallel()
			p := sits(newServer(t), size[0], size[1])
			p.types("stty -g > before; copilot-grpc chat; stty -g > after; echo exit $?")
			p.waits("Enter sends")
			p.types("Hello **there**")
			p.waits("› Hello **there**", "You said: Hello there", "Enter sends")
			p.types("run echo one")
			p.waits("bash  echo one", "? Run a command", "echo one", "A question waits")
			p.types("y")
			p.waits("✓ bash  echo one", "Approved: Run a command", "It came to: one", "Enter sends")
			p.types("run echo two")
			p.waits("bash  echo two", "A question waits")
			p.types("n use printf")
			p.waits("✗ bash  echo two", "use printf", "Refused: Run a command (use printf)", "It came to:", "Enter sends")
			p.types("ask me")
			p.waits("? Which colour?", "1. red", "2. blue", "A question waits")
			p.types("2")
			p.waits("Answered: 2", "You like it:", "blue", "Enter sends")
			p.types("slowly")
			p.waits("First.", "Ctrl-C aborts")
			p.types("queued")
			p.waits("queued (queued)")
			p.presses("C-c")
			p.waits("The turn was aborted.", "Ctrl-C again leaves")
			p.presses("C-c")
			back := p.matches(`Come back with: (\S+ chat \S+)`)[1]
			p.waits("Come back with", "exit 0")
			p.hasItsTerminalBack()
			p.types("clear; " + back)
			p.waits("Enter sends")
			p.presses("C-Home")
			p.waits("› Hello **there**", "You said: Hello there", "✓ bash  echo one")
			p.presses("C-End")
			p.waits("› slowly", "First.", "Enter sends")
			p.types("Hello again")
			p.waits("You said: Hello again")
		})
	}
}

// The server is killed in the middle of a turn: the screen says so, and when it is back, the conversation goes on.
func TestChatOutlivesTheServer(t *testing.T) {
	t.Parallel()
	p := sits(newServer(t), 80, 24)
	p.types("copilot-grpc chat")
	p.waits("Enter sends")
	p.types("slowly")
	p.waits("First.", "Ctrl-C aborts")
	p.Daemon.Crash()
	p.waits("The connection to the server is lost.", "The connection is back", "Enter sends")
	p.types("Hello again")
	p.waits("You said: Hello again", "Enter sends")
	p.types("run echo one")
	p.waits("A question waits")
	p.types("y")
	p.waits("It came to: one", "Enter sends")
	p.types("/quit")
	p.waits("Come back with")
}

// Escape sequences and bidirectional marks of the agent are shown and not obeyed, and a terminal that changes its size
// while text streams shows the whole answer.
func TestChatIsNotFooled(t *testing.T) {
	t.Parallel()
	p := sits(newServer(t), 80, 24)
	p.types("copilot-grpc chat")
	p.waits("Enter sends")
	p.types("evil")
	p.waits("› evil", "before ␛]2;stolen␇␛[2J␛[31m after <U+202E>dne", "Enter sends")
	if title := p.tmux("display-message", "-p", "#{pane_title}"); strings.Contains(title, "stolen") {
		t.Errorf("the title is %q", title)
	}
	p.types("many")
	p.matches(`line \d+ of many`)
	for _, size := range []string{"30 5", "160 50", "10 3", "100 30"} {
		width, height, _ := strings.Cut(size, " ")
		p.tmux("resize-window", "-x", width, "-y", height)
	}
	p.waits("line 149 of many", "line 150 of many", "the end", "Enter sends")
	p.presses("PPage")
	p.waits("line 130 of many", "lines below")
	other := sits(p.Daemon, 160, 50)
	for s, err := range p.Client.ListSessions(p.Ctx, copilot.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		other.types("copilot-grpc events " + s.ID + " --no-follow --raw --types assistant.message")
	}
	other.waits(`"content":"before \u001b]2;stolen\u0007\u001b[2J\u001b[31m after \u202edne"`)
}

// Of two people who see the same question, the second one sees who has answered it.
func TestTwoPeopleAnswer(t *testing.T) {
	t.Parallel()
	first := sits(newServer(t), 80, 24)
	first.types("copilot-grpc chat")
	first.waits("Enter sends")
	first.types("run echo one")
	first.waits("A question waits")
	second := sits(first.Daemon, 80, 24)
	var id string
	for s, err := range first.Client.Pending(first.Ctx) {
		if err != nil {
			t.Fatal(err)
		}
		id = s.SessionID
	}
	second.types("copilot-grpc chat " + id)
	second.waits("? Run a command", "A question waits")
	first.types("y")
	first.waits("Approved: Run a command", "It came to: one")
	second.waits("The question is no longer open: answered by socket", "It came to: one")
}

// Two people answer the same question at once: the first answer counts, and the other person, whose answer is under way
// meanwhile, sees that it came too late, and who was first. Their chat goes on.
func TestTwoPeopleAnswerAtOnce(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"screen": "stty -g > before; %s; stty -g > after; echo exit $?", "plain lines": "stty -g > before; %s --plain; stty -g > after; echo exit $?",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := sits(newServer(t), 80, 24)
			asked, way := asks(p.Daemon, "run echo one"), newDetour(p.Daemon, "too slow")
			p.types(fmt.Sprintf(line, "copilot-grpc chat --target unix:"+way.path+" "+asked.SessionID))
			p.waits("Run a command", "echo one", "n WHY")
			p.types("n too slow")
			<-way.held
			if _, errs, code := inbox(p.Daemon, "answer", asked.ID, "--approve"); code != 0 {
				t.Fatalf("code %d: %s", code, errs)
			}
			ends(p.Daemon, asked)
			close(way.release)
			p.waits("Refused: Run a command (too slow)", "It came to: one")
			p.waits("Your answer came too late: answered by socket")
			p.types("Hello again")
			p.waits("You said: Hello again")
			p.types("/quit")
			p.waits("Come back with", "exit 0")
			p.hasItsTerminalBack()
		})
	}
}

// pipe runs chat with an input and returns its output.
func pipe(d *harness.Daemon, input string, args ...string) (stdout, stderr string, code int) {
	d.T.Helper()
	program, err := harness.Program()
	if err != nil {
		d.T.Fatal(err)
	}
	var out, errs strings.Builder
	cmd := exec.CommandContext(d.Ctx, program, append([]string{"chat", "--target", "unix:" + filepath.Join(d.Root, "s")}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = strings.NewReader(input), &out, &errs, d.Root
	_ = cmd.Run() // the code says it
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// A script has a conversation through pipes, in plain lines, and comes back to it.
func TestChatThroughPipes(t *testing.T) {
	t.Parallel()
	d := newServer(t)
	out, errs, code := pipe(d, "Hello\nrun echo one\ny\nrun echo two\nn use printf\nevil\n/usage\n")
	for _, want := range []string{
		"You: Hello\nAgent: You said: Hello\n",
		"You: run echo one\nTool bash: echo one\nQuestion: Run a command\necho one\n",
		"Approved: Run a command\n", "Agent: It came to: one\n",
		"Refused: Run a command (use printf)\n", "use printf",
		"Agent: before ␛]2;stolen␇␛[2J␛[31m after <U+202E>dne\n", "4 turns",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing", want)
		}
	}
	back := regexp.MustCompile(`Come back with: .* chat --target \S+ (\S+)`).FindStringSubmatch(errs)
	if strings.ContainsAny(out, "\x1b\r") || code != 0 || back == nil {
		t.Fatalf("code %d:\n%s\n%s", code, out, errs)
	}
	id := back[1]
	again, errs, code := pipe(d, "Hello again\n", id)
	if !strings.Contains(again, "Agent: It came to: one\n") || !strings.Contains(again, "Agent: You said: Hello again\n") || code != 0 {
		t.Errorf("back again: code %d:\n%s\n%s", code, again, errs)
	}
	if out, errs, code := pipe(d, "run echo three\n", id); code != 1 || !strings.Contains(errs, "the input ended while a question waits") {
		t.Errorf("without an answer: code %d:\n%s\n%s", code, out, errs)
	}
	if out, errs, code := pipe(d, "y\n", id); code != 0 || !strings.Contains(out, "It came to: three") {
		t.Errorf("the answer of somebody who comes later: code %d:\n%s\n%s", code, out, errs)
	}
}

// A person lists the files that the agent has changed, and copies the session; the copy has its history and goes its own
// way.
func TestChatForks(t *testing.T) {
	t.Parallel()
	d := newServer(t)
	out, errs, code := pipe(d, "write "+filepath.Join(d.Root, "new.txt")+"\ny\n/files\n/fork another way\n/fork\n")
	found := regexp.MustCompile(`The copy is the session (\S+)\. Talk to it with: \S+ chat --target unix:\S+ (\S+)`).
		FindStringSubmatch(out)
	if code != 0 || !strings.Contains(out, "It is written.\nChanged with the agent's file tools:\n  added     new.txt  +2 -0\n") ||
		found == nil || found[1] != found[2] {
		t.Fatalf("code %d:\n%s\n%s", code, out, errs)
	}
	fork := found[1]
	info, err := d.Client.GetSession(d.Ctx, fork)
	if err != nil || info.Title != "another way" {
		t.Errorf("the copy: %+v, %v", info, err)
	}
	out, errs, code = pipe(d, "only here\n", fork)
	if code != 0 || !strings.Contains(out, "It is written.\n") || !strings.Contains(out, "You said: only here\n") {
		t.Errorf("the copy: code %d:\n%s\n%s", code, out, errs)
	}
	for s, err := range d.Client.ListSessions(d.Ctx, copilot.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if out, errs, code := pipe(d, "", s.ID); code != 0 || strings.Contains(out, "only here") != (s.ID == fork) {
			t.Errorf("%s, the copy is %s: code %d:\n%s\n%s", s.ID, fork, code, out, errs)
		}
	}
}

// A person attaches files of their machine to prompts; one that cannot be read is a line, and the prompt goes without it.
func TestChatAttaches(t *testing.T) {
	t.Parallel()
	p := sits(newServer(t), 80, 24)
	p.types("echo plum > 'the word.txt'; head -c 2000000 /dev/zero > large.bin; copilot-grpc chat --file 'the word.txt'")
	p.waits("Attached: 1 · Enter sends")
	p.types("What is it?")
	p.waits("› What is it?", "[file the word.txt]", "You said: What is it?", "Enter sends")
	p.types("/attach none.txt")
	p.waits("The file is not attached: stat none.txt: no such file", "Enter sends")
	p.types("/attach large.bin")
	p.waits("The next prompt has the file large.bin (2000000 bytes).", "Attached: 1 · Enter sends")
	p.types("/attach 'the word.txt'")
	p.waits("The next prompt has the file the word.txt (5 bytes).", "Attached: 2 · Enter sends")
	p.types("And these?")
	p.waits("[file large.bin]", "[file the word.txt]", "You said: And these?", "Enter sends")
	p.types("/quit")
	id := p.matches(`Come back with: \S+ chat (\S+)`)[1]
	var sizes []int
	for ev, err := range p.Client.Session(id).History(p.Ctx, copilot.OfTypes("user.message")) {
		if err != nil {
			t.Fatal(err)
		}
		var event struct {
			Data struct{ Attachments []struct{ Data []byte } }
		}
		whole, err := p.Client.Session(id).ReadEvent(p.Ctx, ev.GetPosition())
		if err = errors.Join(err, json.Unmarshal(whole, &event)); err != nil {
			t.Fatal(err)
		}
		for _, a := range event.Data.Attachments {
			sizes = append(sizes, len(a.Data))
		}
	}
	if !slices.Equal(sizes, []int{5, 2000000, 5}) {
		t.Errorf("the attachments have %d bytes", sizes)
	}
	p.types("clear; copilot-grpc chat --file none.txt; echo exit $?")
	p.waits("--file: stat none.txt: no such file", "exit 2")
}

// Inputs of a chat are in the next one, but those that begin with a space; without a home, and on a full disk, a line says
// that they are not kept, and the chat goes on.
func TestChatKeepsInputs(t *testing.T) {
	t.Parallel()
	p := sits(newServer(t), 80, 24)
	p.types("copilot-grpc chat")
	p.waits("Enter sends")
	p.types(" a secret")
	p.waits("You said: a secret", "Enter sends")
	p.types("remember me")
	p.waits("You said: remember me", "Enter sends")
	p.types("/quit")
	p.waits("Come back with")
	path := filepath.Join(p.dir, "state", "copilot-grpc", "chat-history.jsonl")
	kept, err := os.ReadFile(path)
	info, infoErr := os.Stat(path)
	if err := errors.Join(err, infoErr); err != nil || string(kept) != "\"remember me\"\n" || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file has %q: %v", kept, err)
	}
	p.types("clear; copilot-grpc chat")
	p.waits("Enter sends")
	p.presses("Up")
	p.waits("> remember me")
	p.types(" too")
	p.waits("You said: remember me too", "Enter sends")
	p.types("/quit")
	p.waits("Come back with")
	for without, why := range map[string]string{
		"env -u HOME -u XDG_STATE_HOME": "$HOME is not defined", "ulimit -f 0;": "file too large",
	} {
		p.types("clear; (" + without + " copilot-grpc chat)")
		p.waits("Enter sends")
		p.types("first")
		p.waits("! Inputs are not kept for later chats: ", why)
		p.waits("You said: first", "Enter sends")
		p.types("second")
		p.waits("You said: second", "Enter sends")
		if screen := p.screen(); strings.Count(screen, "not kept") != 1 {
			t.Errorf("%s: the screen\n%s", without, screen)
		}
		p.types("/quit")
		p.waits("Come back with")
	}
}

// Without a server, and with an id that does not exist, chat says what to do, in a line and without a screen.
func TestChatWithoutSession(t *testing.T) {
	t.Parallel()
	d := newServer(t)
	if _, errs, code := pipe(d, "", "no-such-session"); code != 1 ||
		errs != "NotFound: Session not found: no-such-session\nFind its id with: copilot-grpc sessions list\n" {
		t.Errorf("no session: code %d: %s", code, errs)
	}
	d.Stop(syscall.SIGTERM)
	if _, errs, code := pipe(d, ""); code != 6 || !strings.Contains(errs, `Start one with "copilot-grpc serve"`) {
		t.Errorf("no server: code %d: %s", code, errs)
	}
}

// page returns a command of a page, and the lines that the page shows below it.
func page(t *testing.T, name, mark string) (command string, shown []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)<!-- test:" + mark + " -->\n```sh\n(.*?)\n```\n\n```\n(.*?)\n```").FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s has no %s", name, mark)
	}
	for line := range strings.SplitSeq(string(found[2]), "\n") {
		if line = strings.TrimSpace(strings.ReplaceAll(line, "…", "")); line != "" {
			shown = append(shown, line)
		}
	}
	return string(found[1]), shown
}

// What the README and docs/chat.md have typed shows what they show.
func TestChatPages(t *testing.T) {
	t.Parallel()
	p := sits(harness.NewDaemon(harness.NewScripted(t), "--offline-model", "default"), 160, 50)
	command, shown := page(t, "README.md", "chat")
	p.types(command)
	p.waits("Enter sends")
	p.types("run `date`")
	p.waits(shown...)
	p.types("y")
	p.waits("This is what came back", "Enter sends")
	p.types("/quit")
	p.waits("Come back with")
	command, shown = page(t, "docs/chat.md", "plain")
	p.types("clear; " + command)
	p.waits(append(shown, "This is what came back", "Come back with")...)
	command, shown = page(t, "docs/chat.md", "files")
	p.types("clear; " + command)
	p.waits(append(shown, "Come back with")...)
}
