package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// stage is a rig with a script that is written in Go, next to what a test expects of it.
type stage struct {
	*rig
	// far is the MCP server that the session has, if it has one over HTTP.
	far *mcpEndpoint
}

// newStage sets up a stage on the host that tests share.
func newStage(t *testing.T, rules ...rule) *stage {
	t.Helper()
	return (&stage{rig: newRig(t, echo)}).play(rules)
}

// newOwnStage sets up a stage with a server and a CLI process of its own.
func newOwnStage(t *testing.T, config hostConfig, rules ...rule) *stage {
	t.Helper()
	return (&stage{rig: newOwnRig(t, echo, config)}).play(rules)
}

// play has the model follow rules. What none of them answers, it repeats.
func (st *stage) play(rules []offlinemodel.Rule) *stage {
	st.t.Helper()
	err := st.model.SetScript(&offlinemodel.Script{Rules: rules, Default: &offlinemodel.Rule{
		Name: "default", Reply: []offlinemodel.Step{say("You said: {{user}}")},
	}})
	if err != nil {
		st.t.Fatal(err)
	}
	return st
}

// The vocabulary of scripts.

type rule = offlinemodel.Rule

func rules(r ...rule) []rule { return r }

func steps(s ...offlinemodel.Step) []offlinemodel.Step { return s }

func whenUser(text string) offlinemodel.When { return offlinemodel.When{User: text} }

func onUser(text string, reply ...offlinemodel.Step) offlinemodel.Rule {
	return offlinemodel.Rule{When: offlinemodel.When{User: text}, Reply: reply}
}

func onResult(tool string, reply ...offlinemodel.Step) offlinemodel.Rule {
	return offlinemodel.Rule{
		When:  offlinemodel.When{ToolResult: &offlinemodel.ToolResultCondition{Name: tool}},
		Reply: reply,
	}
}

func say(text string) offlinemodel.Step { return offlinemodel.Step{Text: text} }

func call(tool string, arguments map[string]any) offlinemodel.Step {
	if arguments == nil {
		arguments = map[string]any{}
	}
	return offlinemodel.Step{ToolCall: &offlinemodel.ToolCall{Name: tool, Arguments: arguments}}
}

// shell is the arguments of the CLI's own shell tool.
func shell(command string) map[string]any {
	return map[string]any{"command": command, "description": "a test"}
}

func names(tools []offlinemodel.Tool) []string {
	out := make([]string, 0, len(tools))
	for _, tool := range tools {
		out = append(out, tool.Name)
	}
	return out
}

// create makes a session; without a configuration it gets the rig's, streaming.
func (st *stage) create(opts copilot.SessionOptions) *copilot.Session {
	st.t.Helper()
	if opts.Config == nil {
		opts.Config = st.config()
	}
	return st.session(opts).Session
}

// config is the rig's configuration, streaming.
func (st *stage) config() *cliv1.SessionConfig {
	return st.options(func(c *cliv1.SessionConfig) { c.Streaming = proto.Bool(true) }).Config
}

// join takes part in a session by a client of its own.
func (st *stage) join(id string, opts copilot.SessionOptions) *copilot.Session {
	st.t.Helper()
	s, err := st.dial().JoinSession(st.ctx, id, opts)
	if err != nil {
		st.t.Fatalf("join: %v", err)
	}
	return s
}

// reopen resumes a session by a client of its own.
func (st *stage) reopen(id string, opts copilot.SessionOptions) *copilot.Session {
	st.t.Helper()
	return st.resume(st.dial(), id, opts).Session
}

// say has a turn that completes.
func (st *stage) say(s *copilot.Session, text string, opts ...copilot.SendOption) *copilot.Outcome {
	st.t.Helper()
	out, err := s.SendAndWait(st.ctx, text, opts...)
	if err == nil {
		err = out.Err()
	}
	if err != nil {
		st.t.Fatalf("the turn of %q: %v", text, err)
	}
	return out
}

// goSay begins a turn; what it returns waits for its end, which is to be a good one.
func (st *stage) goSay(s *copilot.Session, text string) (wait func() *copilot.Outcome) {
	ended := st.goTurn(s, text)
	return func() *copilot.Outcome {
		st.t.Helper()
		out := ended()
		if err := out.Err(); err != nil {
			st.t.Fatalf("the turn of %q: %v", text, err)
		}
		return out
	}
}

// goTurn begins a turn; what it returns waits for its end, whatever that is.
func (st *stage) goTurn(s *copilot.Session, text string, opts ...copilot.SendOption) (wait func() *copilot.Outcome) {
	var out *copilot.Outcome
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		out, err = s.SendAndWait(st.ctx, text, opts...)
	}()
	st.t.Cleanup(func() { <-done })
	return func() *copilot.Outcome {
		st.t.Helper()
		<-done
		if err != nil {
			st.t.Fatalf("the turn of %q: %v", text, err)
		}
		return out
	}
}

// gate waits until the model is at a gate.
func (st *stage) gate(name string) {
	st.t.Helper()
	if err := st.model.WaitGate(st.ctx, name); err != nil {
		st.t.Fatalf("gate %q: %v", name, err)
	}
}

// await waits for a channel to be closed, or to give a value.
func await[T any](st *stage, c <-chan T, what string) T {
	st.t.Helper()
	select {
	case v := <-c:
		return v
	case <-st.ctx.Done():
		st.t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// first waits for the first event of a type since the session was opened, or after what
// the options say.
func (st *stage) first(s *copilot.Session, eventType string, opts ...copilot.EventsOption) *bridgev1.Event {
	st.t.Helper()
	for ev, err := range s.Events(st.ctx, append(opts, copilot.OfTypes(eventType))...) {
		if err != nil {
			st.t.Fatalf("waiting for %s: %v", eventType, err)
		}
		return ev
	}
	st.t.Fatalf("the events ended without a %s", eventType)
	return nil
}

// all reads the events of some types that the journal has.
func (st *stage) all(s *copilot.Session, types ...string) []*bridgev1.Event {
	st.t.Helper()
	var out []*bridgev1.Event
	for ev, err := range s.History(st.ctx, copilot.OfTypes(types...)) {
		if err != nil {
			st.t.Fatalf("history: %v", err)
		}
		out = append(out, ev)
	}
	return out
}

// toolResults are the results of tools in the newest request to the model, by tool.
func (st *stage) toolResults() map[string]string {
	st.t.Helper()
	out := map[string]string{}
	for _, m := range st.lastModelRequest().Messages {
		if m.Role == offlinemodel.RoleTool {
			out[m.ToolName] = m.Text
		}
	}
	return out
}

// userTexts are what the newest request has the user say.
func userTexts(st *stage) []string {
	st.t.Helper()
	var out []string
	for _, m := range st.lastModelRequest().Messages {
		if m.Role == offlinemodel.RoleUser {
			out = append(out, m.Text)
		}
	}
	return out
}

// pending waits until so many callbacks are pending, and lists them.
func (st *stage) pending(s *copilot.Session, n int) []*bridgev1.Callback {
	st.t.Helper()
	if n > 0 {
		st.callbacks(s.ID()).await("pending callbacks", func(w *callbackWatch) bool { return len(w.waiting) >= n })
	}
	list, err := s.Pending(st.ctx)
	if err != nil {
		st.t.Fatalf("list pending: %v", err)
	}
	if len(list) != n {
		st.t.Fatalf("%d callbacks are pending, want %d: %v", len(list), n, list)
	}
	return list
}

// read is what a file of the working directory has.
func (st *stage) read(name string) string {
	st.t.Helper()
	text, err := os.ReadFile(filepath.Join(st.dir, name))
	if err != nil {
		st.t.Fatal(err)
	}
	return string(text)
}

// exists tells whether the working directory has a file.
func (st *stage) exists(name string) bool {
	_, err := os.Stat(filepath.Join(st.dir, name))
	return err == nil
}

// wantReason checks that an error has a reason.
func wantReason(t *testing.T, err error, reason bridgev1.ErrorReason) {
	t.Helper()
	if !copilot.IsReason(err, reason) {
		t.Errorf("err = %v, want %v", err, reason)
	}
}

// wantField checks an error's code, reason and field.
func wantField(t *testing.T, err error, code codes.Code, reason bridgev1.ErrorReason, field string) *copilot.Error {
	t.Helper()
	e := wantError(t, err, code, reason)
	if e.Field != field {
		t.Errorf("error is %v, want it to name the field %q", e, field)
	}
	return e
}
