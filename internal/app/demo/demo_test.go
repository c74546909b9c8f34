package demo

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// show runs the demo with its files under a directory of the test's own, which must be
// empty afterwards.
func show(t *testing.T, c Config) (string, error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	var out bytes.Buffer
	c.Out = &out
	err = Run(t.Context(), c)
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	return out.String(), err
}

// expected are lines that a viewer is to see, in this order.
var expected = []string{
	"\nyou      What is the weather like in Lisbon?\n",
	"\nasks     custom-tool: may I use the tool \"get_weather\"?\nanswer   approved, this once\n",
	"\ntool     get_weather is called here with city \"Lisbon\" and returns \"sunny and 24 °C in Lisbon\"\n",
	"\nagent    I asked, and this is what I was told: sunny and 24 °C in Lisbon\n",
	"\nevent    session.idle: the turn has ended\n",
	"\nyou      Please run `date`.\n",
	"\nasks     shell: may I run \"date\"?\nanswer   approved, this once\n",
	"\nagent    This is what came back:\n",
	"\nend      ",
}

func check(t *testing.T, out string) {
	t.Helper()
	rest := out
	for _, line := range expected {
		_, after, ok := strings.Cut(rest, line)
		if !ok {
			t.Fatalf("%q is missing, or out of place, in\n%s", line, out)
		}
		rest = "\n" + after
	}
}

// TestRealCLI is what a user sees.
func TestRealCLI(t *testing.T) {
	if os.Getenv("COPILOT_CLI_PATH") == "" {
		t.Skip("COPILOT_CLI_PATH names no CLI")
	}
	out, err := show(t, Config{})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	check(t, out)
}

// fake is a CLI that behaves as the built-in script makes the real one behave.
func fake(t *testing.T, prompts ...fakecli.Prompt) []app.Option {
	t.Helper()
	cli := fakecli.New(fakecli.Options{Script: fakecli.Script{Prompts: prompts}})
	t.Cleanup(cli.Close)
	return []app.Option{app.WithRunner(runtime.InProcess(func(context.Context, runtime.Spec) (io.ReadWriteCloser,
		error) {
		return cli.Connect(), nil
	}))}
}

var (
	weatherPrompt = fakecli.Prompt{Match: "weather", Turns: []fakecli.Turn{
		{Text: "Let me look that up.",
			Tools: []fakecli.Tool{{Name: "get_weather", Arguments: []byte(`{"city":"Lisbon"}`)}}},
		{Text: "I asked, and this is what I was told: sunny and 24 °C in Lisbon"},
	}}
	datePrompt = fakecli.Prompt{Match: "date", Turns: []fakecli.Turn{
		{Text: "I will.", Tools: []fakecli.Tool{{
			Name: "bash", Arguments: []byte(`{"command":"date"}`), Output: "today",
			Permission: []byte(`{"kind":"shell","fullCommandText":"date","intention":"see the date","commands":[],"possiblePaths":[],` +
				`"possibleUrls":[],"hasWriteFileRedirection":false,"canOfferSessionApproval":false}`),
		}}},
		{Text: "This is what came back:\ntoday"},
	}}
)

func TestShows(t *testing.T) {
	out, err := show(t, Config{Options: fake(t, weatherPrompt, datePrompt)})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	check(t, out)
}

// A demo that does not show what it is for has failed.
func TestFails(t *testing.T) {
	for name, tc := range map[string]struct {
		prompts []fakecli.Prompt
		want    string
	}{
		"no tool called": {nil, "never called the tool"},
		"a failed turn": {
			[]fakecli.Prompt{{Turns: []fakecli.Turn{{Error: &fakecli.ModelError{Type: "query",
				Message: "no model there"}}}}},
			"no model there",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := show(t, Config{Options: fake(t, tc.prompts...)})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q in it; shown was\n%s", err, tc.want, out)
			}
		})
	}
}

func TestScreen(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		colour bool
		want   string
	}{
		"plain": {false, "agent    one two\n         three\ntool     x\n\nagent    four\n"},
		"colour": {true, "\x1b[32magent    \x1b[0mone two\n         three\n\x1b[35mtool     " +
			"\x1b[0mx\n\n\x1b[32magent    \x1b[0mfour\n"},
	} {
		var out bytes.Buffer
		s := newScreen(&out, tc.colour)
		s.add("agent", "one ")
		s.add("agent", "two\nthree")
		s.say("tool", "%s", "x")
		s.gap()
		s.add("agent", "four")
		s.gap()
		if got := strings.TrimSuffix(out.String(), "\n"); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
