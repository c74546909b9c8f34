package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// traced is a session whose events a test plays, with the names and errors of its spans.
func traced(t *testing.T) (s *Session, ended func() []string) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	o, err := observe.New(observe.Config{Tracers: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))})
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{ID: "s1", Host: &fixture{}, Epoch: 7, Observer: o}), func() (list []string) {
		for _, span := range spans.GetSpans() {
			name := span.Name
			for _, a := range span.Attributes {
				if a.Key == "error.type" {
					name += ": " + a.Value.AsString()
				}
			}
			list = append(list, name)
		}
		spans.Reset()
		return list
	}
}

// The span of each tool ends once: with the tool, or with the turn or the process that runs it. Only a background task goes
// on after its turn.
func TestSpansOfToolsEnd(t *testing.T) {
	t.Parallel()
	s, ended := traced(t)
	tool := func(id string) {
		s.play("tool.execution_start", fmt.Sprintf(`{"toolCallId":%q,"toolName":"bash"}`, id))
	}
	over := func(id string) {
		s.play("tool.execution_complete", fmt.Sprintf(`{"toolCallId":%q,"success":true}`, id))
	}
	begin := func() { s.play("user.message", user("m")); s.play("assistant.turn_start", "") }
	check := func(name string, want ...string) {
		t.Helper()
		if got := ended(); !slices.Equal(got, want) {
			t.Errorf("%s: the spans %q have ended, not %q", name, got, want)
		}
	}
	begin()
	tool("1")
	tool("1")
	over("1")
	over("1")
	over("2")
	check("a tool", "execute_tool bash")
	tool("3")
	s.play("session.idle", "")
	check("a turn with a background task", "invoke_agent")
	over("3")
	check("the task", "execute_tool bash")
	begin()
	tool("4")
	s.play("abort", "")
	s.play("session.idle", "")
	check("an abort", "execute_tool bash: unfinished", "invoke_agent")
	tool("5")
	s.update(func() { s.turns.lose(bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST) })
	check("the end of the process without a turn", "execute_tool bash: unfinished")
	for i := range 2 * maxTools {
		tool(fmt.Sprint("many-", i))
	}
	s.update(func() { s.turns.lose(bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST) })
	if n := len(ended()); n != maxTools {
		t.Errorf("%d tools had spans", n)
	}
	tool(strings.Repeat("x", maxToolID+1))
	s.update(func() { s.turns.lose(bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST) })
	check("a call with a long id")
	tool("6")
	s.loader.state, s.loader.runtime = Loaded, &unrouted{puppet: &puppet{}}
	if unloaded, err := s.loader.Unload(t.Context(), 0); !unloaded || err != nil {
		t.Fatal(unloaded, err)
	}
	check("a tool whose end was lost, and its session unloaded", "execute_tool bash: unfinished")
}
