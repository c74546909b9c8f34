package terminal

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

var update = flag.Bool("update", false, "write the recording's frames and its picture")

// titles are those of the recordings of the docs, by their names: what a terminal has shown, and the picture that is made of it.
var titles = map[string]string{
	"chat":  "A conversation in the terminal: the agent asks before it runs the tests",
	"inbox": "The inbox in the terminal: what agents ask in two sessions is answered in one place",
	"top":   "The live screen of a server: its CLI process, and a session whose turn runs",
}

func framesFile(name string) string  { return "testdata/" + name + ".frames" }
func pictureFile(name string) string { return "../../docs/" + name + ".svg" }

// recordedModel is what the model plays in the recording.
const recordedModel = `rules:
- when: {user: test fails}
  reply: [{text: "I will run them."}, {tool_call: {name: bash, arguments: {command: sh test.sh, description: Run the tests}}}]
- when: {tool_result: {name: bash}}
  reply: [{text: "**One of three fails.** In ` + "`total`" + `:\n\n- it got 4, and wants 3\n- the loop counts the empty line, too\n"}]
- when: {user: palette}
  reply: [{tool_call: {name: ask_user, arguments: {question: "Which colour?", choices: [red, blue]}}}]
- when: {user: slowly}
  reply: [{text: "First. "}, {wait_for: gate}]
`

// differences are what two recordings have of their own, with what stands for it: ids, the size of the CLI's own prompt, and
// in top the process, its memory and times.
var differences = []struct {
	of *regexp.Regexp
	is string
}{
	{regexp.MustCompile(`· [0-9a-f]{8}`), "· 5f1c9d02"},
	{regexp.MustCompile(`context \d%`), "context 7%"},
	{regexp.MustCompile(`copilot-grpc \S+   sessions`), "copilot-grpc 0.1.0   sessions"},
	{regexp.MustCompile(`rt-[A-Z0-9]{8}`), "rt-7QWMXK2D"},
	{regexp.MustCompile(`\b\d{1,2}s +`), "12s  "},
	{regexp.MustCompile(`PID +SESSIONS +MEMORY +LATENCY`), "PID    SESSIONS  MEMORY     LATENCY"},
	{regexp.MustCompile(`(1\.0\.\d+  )\d+ +(\d)  +(\d+\.\d MiB)? *(\d+ms)? *`), "${1}31061  $2         301.9 MiB  2ms      "},
	{regexp.MustCompile(`(running +12s  )[0-9.]* +`), "${1}0.0       "},
	{regexp.MustCompile(`memory: .*`), "memory: 301.9 MiB"},
}

// frame is a screen of the recording.
type frame struct {
	millis int // for which it is shown
	x, y   int // the cell of the cursor
	lines  []string
}

// frame returns what the terminal shows, with the colours as escape sequences, and without the differences.
func (p *person) frame(millis int) frame {
	p.T.Helper()
	f := frame{millis: millis}
	text := p.tmux("capture-pane", "-p", "-e")
	if _, err := fmt.Sscan(p.tmux("display-message", "-p", "#{cursor_x} #{cursor_y}"), &f.x, &f.y); err != nil {
		p.T.Fatal(err)
	}
	for _, d := range differences {
		text = d.of.ReplaceAllString(text, d.is)
	}
	text = strings.ReplaceAll(text, "\x1b", "␛") // the file is one for people
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		f.lines = append(f.lines, strings.TrimRight(line, " "))
	}
	return f
}

func (f frame) equal(other frame) bool {
	return f.x == other.x && f.y == other.y && slices.Equal(f.lines, other.lines)
}

// String is the frame in the file: a line with its time and its cursor, and its lines.
func (f frame) String() string {
	return fmt.Sprintf("# %d ms, cursor %d %d\n%s\n", f.millis, f.x, f.y, strings.Join(f.lines, "\n"))
}

// framesOf reads the file.
func framesOf(t *testing.T, name string) (frames []frame) {
	t.Helper()
	text, err := os.ReadFile(framesFile(name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
		var f frame
		if _, err := fmt.Sscanf(line, "# %d ms, cursor %d %d", &f.millis, &f.x, &f.y); err == nil {
			frames = append(frames, f)
			continue
		}
		last := &frames[len(frames)-1]
		last.lines = append(last.lines, line)
	}
	return frames
}

// act is what a person does in a recording, what the terminal then shows, and for how long the picture shows it.
type act struct {
	do     func()
	shown  []string
	millis int
}

// records has a person act as the recording has it, screen by screen; with -update it writes the recording.
func (p *person) records(name string, acts []act) {
	p.T.Helper()
	var recorded []frame
	for i, a := range acts {
		a.do()
		p.waits(a.shown...)
		if *update {
			recorded = append(recorded, p.settles(a.millis))
			continue
		}
		want := framesOf(p.T, name)
		if i >= len(want) {
			p.T.Fatalf("%s has %d frames", framesFile(name), len(want))
		}
		p.becomes(want[i])
	}
	if *update {
		writeRecording(p.T, name, recorded)
	}
}

// recordedPerson sits at a terminal of a size, with a server whose model plays recordedModel.
func recordedPerson(t *testing.T, width, height int) *person {
	t.Helper()
	model := filepath.Join(t.TempDir(), "model.yaml")
	if err := os.WriteFile(model, []byte(recordedModel), 0o600); err != nil {
		t.Fatal(err)
	}
	p := sits(harness.NewDaemon(harness.NewScripted(t), "--offline-model", model), width, height)
	p.types("PS1='$ '; clear")
	p.matches(`\A\$\s*\z`)
	return p
}

// typing types a text without Enter.
func (p *person) typing(text string) func() {
	return func() { p.tmux("send-keys", "-l", text) }
}

// The conversation that the README's picture shows takes place as it shows it.
func TestChatRecording(t *testing.T) {
	t.Parallel()
	p := recordedPerson(t, 76, 20)
	harness.WriteFiles(t, p.dir, map[string]string{"test.sh": "echo 'ok    parse'\necho 'ok    print'\n" +
		"echo 'FAIL  total: got 4, want 3'\n"})
	enter := func() { p.presses("Enter") }
	p.records("chat", []act{
		{p.typing("bin/copilot-grpc chat"), []string{"$ bin/copilot-grpc chat"}, 1200},
		{enter, []string{"New conversation", "Enter sends"}, 1000},
		{p.typing("Which "), []string{"> Which"}, 250},
		{p.typing("test "), []string{"> Which test"}, 250},
		{p.typing("fails?"), []string{"> Which test fails?"}, 700},
		{enter, []string{"Which test fails?", "context", "› Which", "? Run a command", "A question waits"}, 3000},
		{p.typing("y"), []string{"> y"}, 700},
		{enter, []string{"✓ bash", "the empty line, too", "Enter sends"}, 6000},
	})
}

// begins makes a session with an id and sends it a prompt.
func (p *person) begins(id, prompt string) func() {
	return func() {
		s, err := p.Client.CreateSession(p.Ctx, copilot.SessionOptions{ID: id})
		if err == nil {
			_, err = s.Send(p.Ctx, prompt)
		}
		if err != nil {
			p.T.Fatal(err)
		}
	}
}

// Two agents ask, and a person answers both, as the picture of the inbox shows it.
func TestInboxRecording(t *testing.T) {
	t.Parallel()
	p := recordedPerson(t, 106, 18)
	enter := func() { p.presses("Enter") }
	p.records("inbox", []act{
		{p.typing("bin/copilot-grpc inbox"), []string{"$ bin/copilot-grpc inbox"}, 1200},
		{enter, []string{"Waiting for questions"}, 1000},
		{p.begins("tests", "Which test fails?"), []string{"[1] Run a command", "y approves once"}, 2500},
		{p.begins("palette", "Choose the palette."), []string{"[2] Which colour?", "2. blue"}, 2500},
		{p.typing("2: 1"), []string{"2: 1"}, 700},
		{enter, []string{"[2] is closed"}, 1500},
		{p.typing("y"), []string{"y"}, 700},
		{enter, []string{"[1] is closed"}, 5000},
	})
}

// The screen of top is as the picture shows it.
func TestTopRecording(t *testing.T) {
	t.Parallel()
	p := recordedPerson(t, 90, 9)
	if p.Before("1.0.102") {
		t.Skip("the recording has columns for the version of CLI 1.0.102")
	}
	p.begins("shop", "Tell me slowly.")()
	p.records("top", []act{
		{func() { p.types("bin/copilot-grpc top --interval 200ms") }, []string{"turns: 1", "CLI processes: 1", "MiB", "shop", "running"}, 5000},
	})
}

// settles returns the frame that stays.
func (p *person) settles(millis int) frame {
	for before := p.frame(millis); ; {
		time.Sleep(time.Second) // writes the file, and tests nothing
		now := p.frame(millis)
		if now.equal(before) {
			return now
		}
		before = now
	}
}

// becomes waits until the terminal shows a frame.
func (p *person) becomes(want frame) {
	p.T.Helper()
	tick, late := time.NewTicker(20*time.Millisecond), time.After(90*time.Second)
	defer tick.Stop()
	for {
		got := p.frame(want.millis)
		if got.equal(want) {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			p.T.Fatalf("the screen is\n%s\nand in the recording (written with -update)\n%s", got, want)
		}
	}
}

func writeRecording(t *testing.T, name string, frames []frame) {
	t.Helper()
	var text strings.Builder
	for _, f := range frames {
		text.WriteString(f.String())
	}
	if err := os.MkdirAll(filepath.Dir(framesFile(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{framesFile(name): text.String(), pictureFile(name): animation(titles[name], frames)} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The pictures are made of the recordings, are small, and have nothing of the machine that made them.
func TestRecordingPictures(t *testing.T) {
	t.Parallel()
	if *update {
		t.Skip("the tests of the recordings write the pictures")
	}
	for name, title := range titles {
		picture, err := os.ReadFile(pictureFile(name))
		if err != nil {
			t.Fatal(err)
		}
		if string(picture) != animation(title, framesOf(t, name)) {
			t.Errorf("%s is not made of %s; write both with -update", pictureFile(name), framesFile(name))
		}
		if len(picture) > 60_000 {
			t.Errorf("%s has %d bytes", pictureFile(name), len(picture))
		}
		if found := regexp.MustCompile(`/(tmp|home|root|work|Users)/|[0-9]{4}-[0-9]{2}|[0-9a-f]{8}-`).Find(picture); found != nil {
			t.Errorf("%s has %q", pictureFile(name), found)
		}
	}
}
