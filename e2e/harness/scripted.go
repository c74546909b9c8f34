package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// Scripted is a Fixture with a script that is written in Go, next to what a test expects of it.
type Scripted struct {
	*Fixture
	// far is the MCP server that the session has, if it has one over HTTP.
	Far *MCPEndpoint
}

// NewScripted sets up a Scripted on the host that tests share.
func NewScripted(t *testing.T, rules ...Rule) *Scripted {
	t.Helper()
	return (&Scripted{Fixture: NewFixture(t, Echo)}).Play(rules)
}

// NewOwnScripted sets up a Scripted with a separate server and CLI process.
func NewOwnScripted(t *testing.T, config HostConfig, rules ...Rule) *Scripted {
	t.Helper()
	return (&Scripted{Fixture: NewOwnFixture(t, Echo, config)}).Play(rules)
}

// Play has the model follow rules. It repeats a message that none of them answers.
func (st *Scripted) Play(rules []offlinemodel.Rule) *Scripted {
	st.T.Helper()
	err := st.Model.SetScript(&offlinemodel.Script{Rules: rules, Default: &offlinemodel.Rule{
		Name: "default", Reply: []offlinemodel.Step{Say("You said: {{user}}")},
	}})
	if err != nil {
		st.T.Fatal(err)
	}
	return st
}

// The vocabulary of scripts.

// Rule is a rule of the offline model.
type Rule = offlinemodel.Rule

// Rules lists rules.
func Rules(r ...Rule) []Rule { return r }

// Steps lists the steps of a reply.
func Steps(s ...offlinemodel.Step) []offlinemodel.Step { return s }

// WhenUser holds when the user's message contains the text.
func WhenUser(text string) offlinemodel.When { return offlinemodel.When{User: text} }

// OnUser replies to a user's message that contains the text.
func OnUser(text string, reply ...offlinemodel.Step) offlinemodel.Rule {
	return offlinemodel.Rule{When: offlinemodel.When{User: text}, Reply: reply}
}

// OnResult replies to a result of the tool.
func OnResult(tool string, reply ...offlinemodel.Step) offlinemodel.Rule {
	return offlinemodel.Rule{
		When:  offlinemodel.When{ToolResult: &offlinemodel.ToolResultCondition{Name: tool}},
		Reply: reply,
	}
}

// Say is a step with text.
func Say(text string) offlinemodel.Step { return offlinemodel.Step{Text: text} }

// Call is a step with a tool call.
func Call(tool string, arguments map[string]any) offlinemodel.Step {
	if arguments == nil {
		arguments = map[string]any{}
	}
	return offlinemodel.Step{ToolCall: &offlinemodel.ToolCall{Name: tool, Arguments: arguments}}
}

// Shell is the arguments of the CLI's own shell tool.
func Shell(command string) map[string]any {
	return map[string]any{"command": command, "description": "a test"}
}

// Names returns the names of tools.
func Names(tools []offlinemodel.Tool) []string {
	out := make([]string, 0, len(tools))
	for _, tool := range tools {
		out = append(out, tool.Name)
	}
	return out
}

// Create makes a session; without a configuration it gets the fixture's, streaming.
func (st *Scripted) Create(opts copilot.SessionOptions) *copilot.Session {
	st.T.Helper()
	if opts.Config == nil {
		opts.Config = st.Config()
	}
	return st.Session(opts).Session
}

// Config is the fixture's configuration, streaming.
func (st *Scripted) Config() *cliv1.SessionConfig {
	return st.Options(func(c *cliv1.SessionConfig) { c.Streaming = proto.Bool(true) }).Config
}

// Join takes part in a session with a new client.
func (st *Scripted) Join(id string, opts copilot.SessionOptions) *copilot.Session {
	st.T.Helper()
	s, err := st.Dial().JoinSession(st.Ctx, id, opts)
	if err != nil {
		st.T.Fatalf("join: %v", err)
	}
	return s
}

// Reopen resumes a session with a new client.
func (st *Scripted) Reopen(id string, opts copilot.SessionOptions) *copilot.Session {
	st.T.Helper()
	return st.Resume(st.Dial(), id, opts).Session
}

// Say has a turn that completes.
func (st *Scripted) Say(s *copilot.Session, text string, opts ...copilot.SendOption) *copilot.Outcome {
	st.T.Helper()
	out, err := s.SendAndWait(st.Ctx, text, opts...)
	if err == nil {
		err = out.Err()
	}
	if err != nil {
		st.T.Fatalf("the turn of %q: %v", text, err)
	}
	return out
}

// GoSay begins a turn; what it returns waits for its end, which is to be a good one.
func (st *Scripted) GoSay(s *copilot.Session, text string) (wait func() *copilot.Outcome) {
	ended := st.GoTurn(s, text)
	return func() *copilot.Outcome {
		st.T.Helper()
		out := ended()
		if err := out.Err(); err != nil {
			st.T.Fatalf("the turn of %q: %v", text, err)
		}
		return out
	}
}

// GoTurn begins a turn; the returned function waits for its end, of any kind.
func (st *Scripted) GoTurn(s *copilot.Session, text string, opts ...copilot.SendOption) (wait func() *copilot.Outcome) {
	var out *copilot.Outcome
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		out, err = s.SendAndWait(st.Ctx, text, opts...)
	}()
	st.T.Cleanup(func() { <-done })
	return func() *copilot.Outcome {
		st.T.Helper()
		<-done
		if err != nil {
			st.T.Fatalf("the turn of %q: %v", text, err)
		}
		return out
	}
}

// Gate waits until the model is at a gate.
func (st *Scripted) Gate(name string) {
	st.T.Helper()
	if err := st.Model.WaitGate(st.Ctx, name); err != nil {
		st.T.Fatalf("gate %q: %v", name, err)
	}
}

// Await waits for a channel to be closed, or to give a value.
func Await[T any](st *Scripted, c <-chan T, what string) T {
	st.T.Helper()
	select {
	case v := <-c:
		return v
	case <-st.Ctx.Done():
		st.T.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// First waits for the first event of a type since the session was opened, or after what
// the options say.
func (st *Scripted) First(s *copilot.Session, eventType string, opts ...copilot.EventsOption) *bridgev1.Event {
	st.T.Helper()
	for ev, err := range s.Events(st.Ctx, append(opts, copilot.OfTypes(eventType))...) {
		if err != nil {
			st.T.Fatalf("waiting for %s: %v", eventType, err)
		}
		return ev
	}
	st.T.Fatalf("the events ended without a %s", eventType)
	return nil
}

// All reads the events of some types that the journal has.
func (st *Scripted) All(s *copilot.Session, types ...string) []*bridgev1.Event {
	st.T.Helper()
	var out []*bridgev1.Event
	for ev, err := range s.History(st.Ctx, copilot.OfTypes(types...)) {
		if err != nil {
			st.T.Fatalf("history: %v", err)
		}
		out = append(out, ev)
	}
	return out
}

// ToolResults are the results of tools in the newest request to the model, by tool.
func (st *Scripted) ToolResults() map[string]string {
	st.T.Helper()
	out := map[string]string{}
	for _, m := range st.LastModelRequest().Messages {
		if m.Role == offlinemodel.RoleTool {
			out[m.ToolName] = m.Text
		}
	}
	return out
}

// UserTexts are what the newest request has the user say.
func UserTexts(st *Scripted) []string {
	st.T.Helper()
	var out []string
	for _, m := range st.LastModelRequest().Messages {
		if m.Role == offlinemodel.RoleUser {
			out = append(out, m.Text)
		}
	}
	return out
}

// Pending waits until so many callbacks are pending, and lists them.
func (st *Scripted) Pending(s *copilot.Session, n int) []*bridgev1.Callback {
	st.T.Helper()
	if n > 0 {
		st.Callbacks(s.ID()).await("pending callbacks", func(w *CallbackWatch) bool { return len(w.waiting) >= n })
	}
	list, err := s.Pending(st.Ctx)
	if err != nil {
		st.T.Fatalf("list pending: %v", err)
	}
	if len(list) != n {
		st.T.Fatalf("%d callbacks are pending, want %d: %v", len(list), n, list)
	}
	var messages []*bridgev1.Callback
	for _, cb := range list {
		messages = append(messages, cb.Proto)
	}
	return messages
}

// Read is what a file of the working directory has.
func (st *Scripted) Read(name string) string {
	st.T.Helper()
	text, err := os.ReadFile(filepath.Join(st.Dir, name))
	if err != nil {
		st.T.Fatal(err)
	}
	return string(text)
}

// Exists tells whether the working directory has a file.
func (st *Scripted) Exists(name string) bool {
	_, err := os.Stat(filepath.Join(st.Dir, name))
	return err == nil
}

// WantReason checks that an error has a reason.
func WantReason(t *testing.T, err error, reason bridgev1.ErrorReason) {
	t.Helper()
	if !copilot.IsReason(err, reason) {
		t.Errorf("err = %v, want %v", err, reason)
	}
}

// WantField checks an error's code, reason and field.
func WantField(t *testing.T, err error, code codes.Code, reason bridgev1.ErrorReason, field string) *copilot.Error {
	t.Helper()
	e := WantError(t, err, code, reason)
	if e.Field != field {
		t.Errorf("error is %v, want it to name the field %q", e, field)
	}
	return e
}

// Talk is the conversation of a request as text.
func Talk(q offlinemodel.Request) string {
	var b strings.Builder
	for _, m := range q.Messages {
		b.WriteString(string(m.Role) + ": " + m.Text + "\n")
	}
	return b.String()
}
