package runtime

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
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// hostEvents opens a WatchHostEvents stream, of one session or of all, and returns its events.
func hostEvents(st *harness.Scripted, id string) <-chan *bridgev1.WatchHostEventsResponse {
	st.T.Helper()
	stream, err := st.Client.Runtimes().WatchHostEvents(st.Ctx, &bridgev1.WatchHostEventsRequest{SessionId: id})
	if err != nil {
		st.T.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		st.T.Fatal(err)
	}
	if first.GetEvent() != nil || first.GetLost() != 0 {
		st.T.Errorf("it begins with %v", first)
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
				case <-st.Ctx.Done():
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

// ended has sessions end until the host gets an event of one.
func ended(
	st *harness.Scripted, told <-chan *bridgev1.WatchHostEventsResponse, end func() *copilot.Session,
) (*bridgev1.WatchHostEventsResponse, string) {
	st.T.Helper()
	for st.Ctx.Err() == nil {
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
	st.T.Fatal("the host is told nothing")
	return nil, ""
}

// TestHostEvents tells of a session's tasks when it leaves its runtime, and who wanted that.
func TestHostEvents(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: tidy})
	skipWithoutHostEvents(st.Fixture)
	got, id := ended(st, hostEvents(st, ""), func() *copilot.Session {
		s := st.Create(copilot.SessionOptions{})
		st.Say(s, "hello")
		unloaded(st, s)
		return s
	})
	wantDisposed(t, got, id, bridgev1.EventCause_EVENT_CAUSE_BRIDGE)
	st = harness.NewScripted(t)
	all := hostEvents(st, "")
	var own <-chan *bridgev1.WatchHostEventsResponse
	got, id = ended(st, all, func() *copilot.Session {
		s := st.Create(copilot.SessionOptions{})
		own = hostEvents(st, s.ID())
		st.Say(s, "hello")
		disconnected(st, s)
		return s
	})
	wantDisposed(t, got, id, bridgev1.EventCause_EVENT_CAUSE_UNSPECIFIED)
	select {
	case got = <-own:
	case <-st.Ctx.Done():
		t.Fatal("who watches the session alone is told nothing")
	}
	wantDisposed(t, got, id, bridgev1.EventCause_EVENT_CAUSE_UNSPECIFIED)
	bad, err := st.Client.Runtimes().WatchHostEvents(st.Ctx, &bridgev1.WatchHostEventsRequest{SessionId: "no/id"})
	if err == nil {
		_, err = bad.Recv()
	}
	harness.WantField(t, copilot.FromError(err), codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD,
		"session_id")
}

// skipWithoutHostEvents skips a test on a CLI whose sessions end without them.
func skipWithoutHostEvents(r *harness.Fixture) {
	r.T.Helper()
	if r.Before("1.0.102") {
		r.T.Skip("an older CLI tells nothing of the end of a session")
	}
}

// disconnected ends a session for all.
func disconnected(st *harness.Scripted, s *copilot.Session) {
	st.T.Helper()
	if _, err := st.Client.Sessions().DisconnectSession(st.Ctx,
		&bridgev1.DisconnectSessionRequest{SessionId: s.ID(), Force: true}); err != nil {
		st.T.Fatal(err)
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

// A program of the CLI gets it through the shim as from the CLI.
func TestHostEventsOfTheShim(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	path, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	cli := os.Getenv(harness.CLIEnv)
	home := "HOME=" + t.TempDir()
	// Each has a different time.
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

// toldOfTheEnd is the host's event when the last participant leaves a session.
func toldOfTheEnd(t *testing.T, env []string, command ...string) (members map[string]any) {
	r := harness.NewFixture(t, harness.ShimScript)
	skipWithoutHostEvents(r)
	p := harness.StartSDKProgram(t, r.Ctx, env, command...)
	p.Call("connect", `{}`)
	for ended := 1; members == nil; ended++ {
		if r.Ctx.Err() != nil {
			t.Fatalf("%s: the host is told nothing", command[0])
		}
		id := fmt.Sprintf("3f0c1f4e-5a10-4c39-9d9e-%012d", ended)
		p.Call("session.create", `{"sessionId":"`+id+`","model":"`+offlinemodel.DefaultModel+`",
			"provider":{"type":"openai","wireApi":"completions","apiKey":"x","baseUrl":"`+r.Model.OpenAIBaseURL()+`"}}`)
		p.Call("session.send", `{"sessionId":"`+id+`","prompt":"hello"}`)
		p.Until("session.idle", ended)
		p.Call("session.destroy", `{"sessionId":"`+id+`"}`)
		select {
		case text := <-p.Host:
			if err := json.Unmarshal(bytes.ReplaceAll(text, []byte(id), []byte("SESSION")), &members); err != nil {
				t.Fatal(err)
			}
		case <-time.After(hostPatience):
		case <-r.Ctx.Done():
		}
	}
	// Of each subscription in the CLI.
	if payload, ok := members["payload"].(map[string]any); ok {
		delete(payload, "subscriptionId")
	}
	return members
}
