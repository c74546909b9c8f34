package clients

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const (
	// languageEnv names the client whose examples are run; .ci/client sets it.
	languageEnv = "COPILOT_GRPC_CLIENT"
	// cutAfter is the event after which the connection is cut: in the middle of the turn.
	cutAfter = "external_tool.completed"
)

// language is a client with its examples.
type language struct {
	// dir is where its commands run.
	dir string
	// agent and events are the commands of its examples.
	agent, events []string
	// oneof is what its stubs call the case custom_tool.
	oneof string
}

var languages = map[string]language{
	"python": {
		dir:    "../../clients/python",
		agent:  []string{".cache/venv/bin/python", "-m", "examples.agent"},
		events: []string{".cache/venv/bin/python", "-m", "examples.events"},
		oneof:  "custom_tool",
	},
}

// TestExamples runs both examples at once on one session: one makes a turn with a tool
// and a permission, over a unix socket; the other follows its events, over TCP with a
// token and through a connection that breaks. The model waits with its last words until
// that has happened.
func TestExamples(t *testing.T) {
	t.Parallel()
	name := os.Getenv(languageEnv)
	if name == "" {
		t.Skip(languageEnv + " is not set: .ci/client runs this")
	}
	lang, known := languages[name]
	if !known {
		t.Fatalf("%s is %q, which is no client", languageEnv, name)
	}
	s := startServer(t)
	p := startProxy(t, s.tcp)

	agent := startProgram(t, lang.dir, nil, append(lang.agent, s.unix)...)
	session, ok := strings.CutPrefix(agent.line(), "session ")
	if !ok {
		t.Fatalf("the agent example did not begin with its session:\n%s", agent.rest())
	}
	events := startProgram(t, lang.dir, []string{tokenEnv + "=" + token}, append(lang.events, p.address(), session)...)

	seen := events.until(cutAfter)
	p.cut()
	seen = append(seen, events.until("broken after ")...)
	s.release(t)
	checkEvents(t, append(seen, events.rest()...))

	wantAgent := []string{
		"assistant: Let me look.",
		"permission " + lang.oneof,
		`tool get_weather {"city":"Paris"}`,
		"assistant: The tool says: rain in Paris. Take a coat.",
	}
	if got := agent.rest(); !slices.Equal(got, wantAgent) {
		t.Errorf("the agent example printed %q, want %q", got, wantAgent)
	}
}

// checkEvents looks at what the events example printed: every event once and in order,
// over one break.
func checkEvents(t *testing.T, lines []string) {
	t.Helper()
	var (
		epoch, next     uint64 = 0, 1
		types           []string
		breaks, aBreak  int
		at              string
		beforeAndBehind = func() bool { return aBreak > 0 && aBreak < len(types) }
	)
	for _, line := range lines {
		var e, seq uint64
		var kind string
		switch n, _ := fmt.Sscanf(line, "event %d/%d %s", &e, &seq, &kind); {
		case n == 3:
			if (epoch != 0 && e != epoch) || seq != next {
				t.Errorf("after event %d/%d came %q", epoch, next-1, line)
			}
			epoch, next = e, seq+1
			types = append(types, kind)
			at = fmt.Sprintf("%d/%d", e, seq)
		case strings.HasPrefix(line, "broken after "+at+": "):
			breaks, aBreak = breaks+1, len(types)
		default:
			t.Errorf("unexpected line %q after event %s", line, at)
		}
	}
	if breaks != 1 || !beforeAndBehind() {
		t.Errorf("%d breaks, the last after %d of %d events; want one in between", breaks, aBreak, len(types))
	}
	for _, want := range []string{"session.start", "permission.requested", "external_tool.requested", "session.idle"} {
		if !slices.Contains(types, want) {
			t.Errorf("no %s among the events %q", want, types)
		}
	}
}
