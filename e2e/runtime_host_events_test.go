package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// hostEvents opens a WatchHostEvents stream, of one session or of all, and returns its events.
func (st *stage) hostEvents(id string) <-chan *bridgev1.WatchHostEventsResponse {
	st.t.Helper()
	stream, err := st.client.Runtimes().WatchHostEvents(st.ctx, &bridgev1.WatchHostEventsRequest{SessionId: id})
	if err != nil {
		st.t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		st.t.Fatal(err)
	}
	if first.GetEvent() != nil || first.GetLost() != 0 {
		st.t.Errorf("it begins with %v", first)
	}
	told := make(chan *bridgev1.WatchHostEventsResponse, 64)
	go func() {
		for {
			frame, err := stream.Recv()
			if err != nil {
				return
			}
			if frame.GetEvent() != nil {
				select {
				case told <- frame:
				case <-st.ctx.Done():
					return
				}
			}
		}
	}()
	return told
}

// hostPatience is how long the CLI may take to tell of a session's end. Of one that it has not
// come to, on a busy machine, it tells nothing: then another session is ended.
const hostPatience = 5 * time.Second

// ended has sessions end until the host is told of one.
func (st *stage) ended(told <-chan *bridgev1.WatchHostEventsResponse, end func() *copilot.Session) (*bridgev1.WatchHostEventsResponse, string) {
	st.t.Helper()
	for st.ctx.Err() == nil {
		s, late := end(), time.After(hostPatience)
		for waiting := true; waiting; {
			select {
			case got := <-told:
				if got.GetEvent().GetScope().GetSessionId() == s.ID() {
					return got, s.ID()
				}
			case <-late:
				waiting = false
			}
		}
	}
	st.t.Fatal("the host is told nothing")
	return nil, ""
}

// TestHostEvents tells of a session's tasks when it leaves its runtime, and who wanted that.
func TestHostEvents(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{change: tidy})
	st.skipWithoutHostEvents()
	got, id := st.ended(st.hostEvents(""), func() *copilot.Session {
		s := st.create(copilot.SessionOptions{})
		st.say(s, "hello")
		st.unloaded(s)
		return s
	})
	wantDisposed(t, got, id, bridgev1.EventCause_EVENT_CAUSE_BRIDGE)
	st = newStage(t)
	all := st.hostEvents("")
	var own <-chan *bridgev1.WatchHostEventsResponse
	got, id = st.ended(all, func() *copilot.Session {
		s := st.create(copilot.SessionOptions{})
		own = st.hostEvents(s.ID())
		st.say(s, "hello")
		st.disconnected(s)
		return s
	})
	wantDisposed(t, got, id, bridgev1.EventCause_EVENT_CAUSE_UNSPECIFIED)
	select {
	case got = <-own:
	case <-st.ctx.Done():
		t.Fatal("who watches the session alone is told nothing")
	}
	wantDisposed(t, got, id, bridgev1.EventCause_EVENT_CAUSE_UNSPECIFIED)
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
	p.call("connect", `{}`)
	for ended := 1; members == nil; ended++ {
		if r.ctx.Err() != nil {
			t.Fatalf("%s: the host is told nothing", command[0])
		}
		id := fmt.Sprintf("3f0c1f4e-5a10-4c39-9d9e-%012d", ended)
		p.call("session.create", `{"sessionId":"`+id+`","model":"`+offlinemodel.DefaultModel+`",
			"provider":{"type":"openai","wireApi":"completions","apiKey":"x","baseUrl":"`+r.model.OpenAIBaseURL()+`"}}`)
		p.call("session.send", `{"sessionId":"`+id+`","prompt":"hello"}`)
		p.until("session.idle", ended)
		p.call("session.destroy", `{"sessionId":"`+id+`"}`)
		select {
		case text := <-p.host:
			if err := json.Unmarshal(bytes.ReplaceAll(text, []byte(id), []byte("SESSION")), &members); err != nil {
				t.Fatal(err)
			}
		case <-time.After(hostPatience):
		case <-r.ctx.Done():
		}
	}
	// Of each subscription in the CLI.
	if payload, ok := members["payload"].(map[string]any); ok {
		delete(payload, "subscriptionId")
	}
	return members
}
