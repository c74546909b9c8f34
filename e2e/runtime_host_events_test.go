package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// hostEvents opens a WatchHostEvents stream, of one session or of all, and returns what
// gives the next event.
func (st *stage) hostEvents(id string) func() *bridgev1.WatchHostEventsResponse {
	st.t.Helper()
	stream, err := st.client.Runtimes().WatchHostEvents(st.ctx, &bridgev1.WatchHostEventsRequest{SessionId: id})
	if err != nil {
		st.t.Fatal(err)
	}
	next := func() *bridgev1.WatchHostEventsResponse {
		st.t.Helper()
		frame, err := stream.Recv()
		if err != nil {
			st.t.Fatal(err)
		}
		return frame
	}
	if first := next(); first.GetEvent() != nil || first.GetLost() != 0 {
		st.t.Errorf("it begins with %v", first)
	}
	return func() *bridgev1.WatchHostEventsResponse {
		for {
			if frame := next(); frame.GetEvent() != nil {
				return frame
			}
		}
	}
}

// TestHostEvents tells of a session's tasks when it leaves its runtime, and who wanted that.
func TestHostEvents(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{change: tidy})
	st.skipWithoutHostEvents()
	next := st.hostEvents("")
	s := st.create(copilot.SessionOptions{})
	st.say(s, "hello")
	st.unloaded(s)
	wantDisposed(t, next(), s.ID(), bridgev1.EventCause_EVENT_CAUSE_BRIDGE)
	st = newStage(t)
	s = st.create(copilot.SessionOptions{})
	next = st.hostEvents(s.ID())
	st.say(s, "hello")
	st.disconnected(s)
	wantDisposed(t, next(), s.ID(), bridgev1.EventCause_EVENT_CAUSE_UNSPECIFIED)
	bad, err := st.client.Runtimes().WatchHostEvents(st.ctx, &bridgev1.WatchHostEventsRequest{SessionId: "no/id"})
	if err == nil {
		_, err = bad.Recv()
	}
	wantField(t, copilot.FromError(err), codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD, "session_id")
}

// skipWithoutHostEvents skips a test on a CLI whose sessions end without them.
func (r *rig) skipWithoutHostEvents() {
	r.t.Helper()
	if r.before("1.0.102") {
		r.t.Skip("an older CLI tells nothing of the end of a session")
	}
}

// disconnected ends a session for everybody.
func (st *stage) disconnected(s *copilot.Session) {
	st.t.Helper()
	if _, err := st.client.Sessions().DisconnectSession(st.ctx, &bridgev1.DisconnectSessionRequest{SessionId: s.ID(), Force: true}); err != nil {
		st.t.Fatal(err)
	}
}

func wantDisposed(t *testing.T, got *bridgev1.WatchHostEventsResponse, id string, cause bridgev1.EventCause) {
	t.Helper()
	e := got.GetEvent()
	var payload struct{ Kind string }
	if err := json.Unmarshal([]byte(e.GetPayloadJson()), &payload); err != nil {
		t.Errorf("payload: %v", err)
	}
	if e.GetKind() != "task_transition" || e.GetScope().GetSessionId() != id || payload.Kind != "disposed" ||
		got.GetCause() != cause || got.GetRuntimeId() == "" || got.GetPayloadWithheld() {
		t.Errorf("told %v, want that the tasks of %q are disposed of, by %v", got, id, cause)
	}
}

// A program of the CLI is told so through the shim as by the CLI.
func TestHostEventsOfTheShim(t *testing.T) {
	t.Parallel()
	skipWithoutCLI(t)
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cli := os.Getenv(cliEnv)
	home := "HOME=" + t.TempDir()
	// Each has a time of its own.
	told := func(env []string, command ...string) (members map[string]any) {
		t.Run(filepath.Base(command[0]), func(t *testing.T) { members = toldOfTheEnd(t, env, command...) })
		return members
	}
	want := told([]string{home}, cli)
	if want == nil {
		return // the CLI tells nothing, or the test has failed
	}
	if got := told([]string{home, "COPILOT_GRPC_CLI=" + cli}, path, "shim"); !reflect.DeepEqual(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
}

// toldOfTheEnd is what the host is told when the last leaves a session.
func toldOfTheEnd(t *testing.T, env []string, command ...string) (members map[string]any) {
	r := newRig(t, shimScript)
	r.skipWithoutHostEvents()
	p := startSDKProgram(t, r.ctx, env, command...)
	const id = "3f0c1f4e-5a10-4c39-9d9e-0c7a2f1d8b12"
	p.call("connect", `{}`)
	p.call("session.create", `{"sessionId":"`+id+`","model":"`+offlinemodel.DefaultModel+`",
		"provider":{"type":"openai","wireApi":"completions","apiKey":"x","baseUrl":"`+r.model.OpenAIBaseURL()+`"}}`)
	p.call("session.send", `{"sessionId":"`+id+`","prompt":"hello"}`)
	p.until("session.idle", 1)
	p.call("session.destroy", `{"sessionId":"`+id+`"}`)
	select {
	case text := <-p.host:
		if err := json.Unmarshal(text, &members); err != nil {
			t.Fatal(err)
		}
	case <-r.ctx.Done():
		t.Fatalf("%s: the host is told nothing", command[0])
	}
	// Of each subscription in the CLI.
	if payload, ok := members["payload"].(map[string]any); ok {
		delete(payload, "subscriptionId")
	}
	return members
}
