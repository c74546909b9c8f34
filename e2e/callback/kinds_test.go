package callback

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// rows are all tables of questions.
var rows = []map[string]question{
	questions, mcpQuestions, gitHubQuestions, hookQuestions, ownCommands, bound, clientside, unaskable, fileQuestions,
	{"extension launch": extensionLaunch},
}

// elsewhere are the kinds that separate tests put in all the ways, and have no row: a request to a model is answered in
// pieces.
var elsewhere = map[bridgev1.CallbackKind][]func(*testing.T){
	bridgev1.CallbackKind_CALLBACK_KIND_MODEL_REQUEST_START: {TestModelRequests, TestModelRequestRefused,
		TestModelRequestOfTwo},
	bridgev1.CallbackKind_CALLBACK_KIND_MODEL_REQUEST_CHUNK: {TestModelRequests, TestModelRequestRefused,
		TestModelRequestAborted},
}

// TestEveryKindHasARow, by which it is put in all the ways that there are.
func TestEveryKindHasARow(t *testing.T) {
	t.Parallel()
	asked := map[bridgev1.CallbackKind]bool{}
	for _, table := range rows {
		for q := range maps.Values(table) {
			asked[q.kind] = true
		}
	}
	for number := range bridgev1.CallbackKind_name {
		kind := bridgev1.CallbackKind(number)
		if _, ok := callback.MethodOf(kind); ok && !asked[kind] && len(elsewhere[kind]) == 0 {
			t.Errorf("%v has no row", kind)
		}
	}
}

// noCallbacks are what the schemas have the CLI send or ask that is none of a session's: what
// is for its own supervisor, and what only tells.
var noCallbacks = []string{
	"host.exited", "host.materializeSession", "host.registerSession", "host.sessionReleased", "host.shutdown",
	"host.unregisterSession", "gitHubTelemetry.event", "tool.user_requested",
}

// askingEvent is a type of event that asks.
var askingEvent = regexp.MustCompile(`"const": ?"([a-zA-Z_.]+(?:requested|_required)|command\.queued|command\.execute)"`)

// TestEverythingInTheSchemasIsAKind counts in the schemas that the CLI itself has unpacked.
func TestEverythingInTheSchemasIsAKind(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	dir := schemasOf(t, harness.NewFixture(t, harness.Echo).Host.CLI)
	asked := map[string]bool{}
	var api map[string]json.RawMessage
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "api.schema.json")), &api); err != nil {
		t.Fatal(err)
	}
	for section, text := range api {
		if strings.HasPrefix(section, "client") {
			for _, m := range regexp.MustCompile(`"rpcMethod": ?"([^"]+)"`).FindAllSubmatch(text, -1) {
				asked[string(m[1])] = true
			}
		}
	}
	for _, m := range askingEvent.FindAllSubmatch(readFile(t, filepath.Join(dir, "session-events.schema.json")), -1) {
		asked[string(m[1])] = true
	}
	if len(asked) < 35 {
		t.Errorf("the schemas have the CLI ask only %d things", len(asked))
	}
	for _, method := range slices.Sorted(maps.Keys(asked)) {
		_, told := callback.Told[method]
		k := callback.ForEvent(method)
		if k == nil {
			k = callback.ForRequest(method)
		}
		if k.Type == bridgev1.CallbackKind_CALLBACK_KIND_RAW && !told && !slices.Contains(noCallbacks, method) {
			t.Errorf("the CLI asks %q, which is no kind of callback", method)
		}
	}
}

// schemasOf finds the schemas of a version where the bridge, or the CLI, unpacks them.
func schemasOf(t *testing.T, version string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"copilot-grpc", "copilot"} {
		found, _ := filepath.Glob(filepath.Join(cache, program, "pkg", "*", version, "schemas")) // a constant pattern
		if len(found) > 0 {
			return found[0]
		}
	}
	t.Fatalf("CLI %s has unpacked no schemas below %s", version, cache)
	return ""
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestUnknownCallback: what a newer CLI may ask comes as it is, and without an answer ends in
// an error.
func TestUnknownCallback(t *testing.T) {
	t.Parallel()
	host := harness.NewOwnFixture(t, harness.Echo,
		faked(fakecli.Reverse{Method: "something.new", Params: params(`{"x":1}`)})).Host
	for name, way := range map[string]struct {
		answered bool
		became   string
	}{
		"answered": {true, `told: {"y":2}`}, "unanswered": {false, "error: something.new: no participant"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := &harness.Scripted{Fixture: harness.NewFixtureOn(t, host, harness.Echo)}
			handlers := &bridgev1.Handlers{Methods: []string{"something.new"}}
			opts := copilot.SessionOptions{}
			if !way.answered {
				opts = copilot.SessionOptions{CallbackTimeout: 300 * time.Millisecond, SessionHandlers: handlers}
			}
			s := st.Create(opts)
			frames := st.Callbacks(s.ID())
			var p *harness.Attached
			if way.answered {
				p = st.Attach(harness.JoinOf(s.ID(), handlers))
			}
			turn := st.GoTurn(s, "ask")
			cb := frames.Requested(bridgev1.CallbackKind_CALLBACK_KIND_RAW)
			if raw := cb.GetRaw(); raw.GetMethod() != "something.new" ||
				!strings.Contains(raw.GetParamsJson(), `"x":1`) {
				t.Errorf("asked %v", cb)
			}
			if p != nil {
				answer, err := copilot.AnswerRequest(map[string]int{"y": 2})
				if err != nil {
					t.Fatal(err)
				}
				if r := p.Answer(cb.GetCallbackId(), answer); r.Failed != nil {
					t.Fatalf("the answer was refused: %v", r.Failed)
				}
			}
			if text := turn().Text(); !strings.Contains(text, way.became) {
				t.Errorf("what came of it is %q, want %q", text, way.became)
			}
		})
	}
}
