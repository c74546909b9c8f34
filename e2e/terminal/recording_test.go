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

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

var update = flag.Bool("update", false, "write the recording's frames and its picture")

// The recording of the README: what a terminal has shown, and the picture that is made of it.
const (
	framesFile  = "testdata/chat.frames"
	pictureFile = "../../docs/chat.svg"
)

// recordedModel is what the model plays in the recording.
const recordedModel = `rules:
- when: {user: test fails}
  reply: [{text: "I will run them."}, {tool_call: {name: bash, arguments: {command: sh test.sh, description: Run the tests}}}]
- when: {tool_result: {name: bash}}
  reply: [{text: "**One of three fails.** In ` + "`total`" + `:\n\n- it got 4, and wants 3\n- the loop counts the empty line, too\n"}]
`

// frame is a screen of the recording.
type frame struct {
	millis int // for which it is shown
	x, y   int // the cell of the cursor
	lines  []string
}

// frame returns what the terminal shows, with the colours as escape sequences, and without what differs between two
// recordings: the session's id, and the size of the CLI's own prompt.
func (p *person) frame(millis int) frame {
	p.T.Helper()
	f := frame{millis: millis}
	text := p.tmux("capture-pane", "-p", "-e")
	if _, err := fmt.Sscan(p.tmux("display-message", "-p", "#{cursor_x} #{cursor_y}"), &f.x, &f.y); err != nil {
		p.T.Fatal(err)
	}
	text = regexp.MustCompile(`· [0-9a-f]{8}`).ReplaceAllString(text, "· 5f1c9d02")
	text = regexp.MustCompile(`context \d%`).ReplaceAllString(text, "context 7%")
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
func framesOf(t *testing.T) (frames []frame) {
	t.Helper()
	text, err := os.ReadFile(framesFile)
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

// The conversation that the README's picture shows takes place as it shows it, screen by screen.
func TestChatRecording(t *testing.T) {
	t.Parallel()
	model := filepath.Join(t.TempDir(), "model.yaml")
	if err := os.WriteFile(model, []byte(recordedModel), 0o600); err != nil {
		t.Fatal(err)
	}
	p := sits(harness.NewDaemon(harness.NewScripted(t), "--offline-model", model), 76, 20)
	harness.WriteFiles(t, p.dir, map[string]string{"test.sh": "echo 'ok    parse'\necho 'ok    print'\n" +
		"echo 'FAIL  total: got 4, want 3'\n"})
	p.types("PS1='$ '; clear")
	p.matches(`\A\$\s*\z`)
	var recorded []frame
	for i, step := range []struct {
		do     func()
		shown  []string
		millis int
	}{
		{func() { p.tmux("send-keys", "-l", "bin/copilot-grpc chat") }, []string{"$ bin/copilot-grpc chat"}, 1200},
		{func() { p.presses("Enter") }, []string{"New conversation", "Enter sends"}, 1000},
		{func() { p.tmux("send-keys", "-l", "Which ") }, []string{"> Which"}, 250},
		{func() { p.tmux("send-keys", "-l", "test ") }, []string{"> Which test"}, 250},
		{func() { p.tmux("send-keys", "-l", "fails?") }, []string{"> Which test fails?"}, 700},
		{func() { p.presses("Enter") }, []string{"Which test fails?", "context", "› Which", "? Run a command", "A question waits"}, 3000},
		{func() { p.tmux("send-keys", "-l", "y") }, []string{"> y"}, 700},
		{func() { p.presses("Enter") }, []string{"✓ bash", "the empty line, too", "Enter sends"}, 6000},
	} {
		step.do()
		p.waits(step.shown...)
		if *update {
			recorded = append(recorded, p.settles(step.millis))
			continue
		}
		want := framesOf(t)
		if i >= len(want) {
			t.Fatalf("%s has %d frames", framesFile, len(want))
		}
		p.becomes(want[i])
	}
	if *update {
		writeRecording(t, recorded)
	}
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

func writeRecording(t *testing.T, frames []frame) {
	t.Helper()
	var text strings.Builder
	for _, f := range frames {
		text.WriteString(f.String())
	}
	if err := os.MkdirAll(filepath.Dir(framesFile), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{framesFile: text.String(), pictureFile: animation(frames)} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The README's picture is made of the recording, is small, and has nothing of the machine that made it.
func TestRecordingPicture(t *testing.T) {
	t.Parallel()
	if *update {
		t.Skip("TestChatRecording writes the picture")
	}
	picture, err := os.ReadFile(pictureFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(picture) != animation(framesOf(t)) {
		t.Errorf("%s is not made of %s; write both with -update", pictureFile, framesFile)
	}
	if len(picture) > 60_000 {
		t.Errorf("%s has %d bytes", pictureFile, len(picture))
	}
	if found := regexp.MustCompile(`/(tmp|home|root|work|Users)/|[0-9]{4}-[0-9]{2}|[0-9a-f]{8}-`).Find(picture); found != nil {
		t.Errorf("%s has %q", pictureFile, found)
	}
}
