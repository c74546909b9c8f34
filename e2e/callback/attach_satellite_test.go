package callback

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// canvasOf declares a canvas, with one action.
func canvasOf(id string) *cliv1.CanvasDeclaration {
	return &cliv1.CanvasDeclaration{
		Id: id, DisplayName: "Board", Description: "A board.",
		Actions: []*cliv1.CanvasActionDeclaration{{Name: "paint", Description: proto.String("Paints it.")}},
	}
}

// showing has a participant show a canvas.
func showing(id string) func(*bridgev1.AttachStart) {
	return func(start *bridgev1.AttachStart) { start.Canvases = []*cliv1.CanvasDeclaration{canvasOf(id)} }
}

// rendering has a session with canvases.
func rendering(_ *harness.Scripted, c *cliv1.SessionConfig) {
	c.RequestCanvasRenderer = proto.Bool(true)
}

// openBoard opens the canvas "board" as "one".
func openBoard(st *harness.Scripted, s *copilot.Session) func() string {
	return invoke(st, s, "session.canvas.open", map[string]any{"canvasId": "board", "instanceId": "one"})
}

// opened opens the board, which another participant than the later one answers, and then asks about it.
func opened(method string, params map[string]any) func(*harness.Scripted, *copilot.Session) func() string {
	params["instanceId"] = "one"
	return func(st *harness.Scripted, s *copilot.Session) func() string {
		st.T.Helper()
		got := openBoard(st, s)
		settle(st, s, &cliv1.CallbackCanvasServiceOpenResponse{Url: proto.String("http://127.0.0.1/board")})
		if text := got(); !strings.Contains(text, "http://127.0.0.1/board") {
			st.T.Fatalf("the canvas opened as %s", text)
		}
		return invoke(st, s, method, params)
	}
}

// settle answers the one callback that is pending, from outside.
func settle(st *harness.Scripted, s *copilot.Session, m proto.Message) {
	st.T.Helper()
	cb := st.Pending(s, 1)[0]
	answer, err := copilot.AnswerWith(m)
	if err == nil {
		err = s.Resolve(st.Ctx, cb.GetCallbackId(), answer)
	}
	if err != nil {
		st.T.Fatal(err)
	}
}

// bound are the kinds that arrive on a participant's own connection.
var bound = map[string]question{
	"canvas open": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_CANVAS_OPEN, bound: true, joins: showing("board"), config: rendering,
		ask:      openBoard,
		request:  `canvas_id:"board"`,
		accept:   &cliv1.CallbackCanvasServiceOpenResponse{Url: proto.String("http://127.0.0.1/board")},
		accepted: "http://127.0.0.1/board",
		decline:  failing, declined: "not today",
		silent: "no participant", broken: "connection closed",
	},
	"canvas action": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_CANVAS_ACTION, bound: true, joins: showing("board"),
		config: rendering,
		ask: opened("session.canvas.action.invoke",
			map[string]any{"actionName": "paint", "input": map[string]any{"colour": "red"}}),
		request:  `action_name:"paint"`,
		accept:   &cliv1.CallbackCanvasActionServiceInvokeResponse{Value: `{"painted":"red"}`},
		accepted: `"painted":"red"`,
		decline:  failing, declined: "not today",
		silent: "no participant", broken: "connection closed",
	},
	"canvas close": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_CANVAS_CLOSE, bound: true, joins: showing("board"), config: rendering,
		ask:     opened("session.canvas.close", map[string]any{}),
		request: `canvas_id:"board"`,
		accept:  &cliv1.CallbackCanvasServiceCloseResponse{}, accepted: "null", // any answer is accepted
		declined: "null", silent: "null",
	},
}

// failing is an error in an answer's place.
var failing = &bridgev1.AnswerError{Message: "not today"}

// TestSatellites: what the CLI binds to a connection reaches the participant whose it is.
func TestSatellites(t *testing.T) {
	t.Parallel()
	host := harness.NewOwnFixture(t, harness.Echo,
		harness.HostConfig{Raw: true, Change: func(c *app.Config) { c.MultiConnection = true }}).Host
	for name, q := range bound {
		t.Run(name, func(t *testing.T) { q.test(t, host) })
	}
}
