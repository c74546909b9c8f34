package session

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

func TestSessionLog(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	s.Ask("hello") // the CLI begins its record with the first message
	lines := []struct {
		message, eventType string
		opts               []copilot.LogOption
	}{
		{"by the way", "session.info", []copilot.LogOption{copilot.LogURL("https://example.com/more")}},
		{"watch out", "session.warning",
			[]copilot.LogOption{copilot.LogLevel(cliv1.SessionLogLevel_SESSION_LOG_LEVEL_WARNING)}},
		{"it broke", "session.error",
			[]copilot.LogOption{copilot.LogLevel(cliv1.SessionLogLevel_SESSION_LOG_LEVEL_ERROR)}},
		{"in passing", "session.info", []copilot.LogOption{copilot.LogEphemeral()}},
	}
	for _, line := range lines {
		id, err := s.Log(r.Ctx, line.message, line.opts...)
		if err != nil {
			t.Fatalf("log %q: %v", line.message, err)
		}
		got := s.WaitUntil(line.message,
			func(ev *bridgev1.Event) bool { return ev.GetEvent().GetId() == id }).GetEvent()
		text := got.GetSessionInfo().GetMessage() + got.GetSessionWarning().GetMessage() +
			got.GetSessionError().GetMessage()
		if got.GetEventType() != line.eventType || text != line.message {
			t.Errorf("%q became %s %q", line.message, got.GetEventType(), text)
		}
		if got.GetEphemeral() != (line.message == "in passing") {
			t.Errorf("%q is ephemeral: %t", line.message, got.GetEphemeral())
		}
	}
	s.Ask("hello again")
	recorded := ""
	for _, one := range s.Record() {
		recorded += string(one.Data) + "\n"
	}
	for _, line := range lines[:3] {
		if !strings.Contains(recorded, line.message) {
			t.Errorf("the CLI did not record %q", line.message)
		}
	}
	if strings.Contains(recorded, "in passing") {
		t.Error("the CLI recorded an ephemeral line")
	}
	if told := string(r.LastModelRequest().Body); strings.Contains(told, "watch out") {
		t.Error("the model was told a line for users")
	}
	_, err := s.Log(r.Ctx, "")
	harness.WantField(t, err, codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD, "message")
}

func TestSessionSetModel(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	s.Ask("hello")
	got, err := s.SetModel(r.Ctx, "gpt-5.4", "high")
	if err != nil {
		t.Fatal(err)
	}
	if got != "" && got != "gpt-5.4" {
		t.Errorf("the model in use is %q", got)
	}
	change := s.WaitFor("session.model_change").GetEvent().GetSessionModelChange()
	if change.GetPreviousModel() != offlinemodel.DefaultModel || change.GetNewModel() != "gpt-5.4" ||
		change.GetReasoningEffort() != "high" {
		t.Errorf("session.model_change says %v", change)
	}
	s.Ask("hello again")
	last := r.LastModelRequest()
	if last.Model != "gpt-5.4" || !strings.Contains(string(last.Body), `"high"`) {
		t.Errorf("the model asked for is %q, the request has the effort: %t", last.Model,
			strings.Contains(string(last.Body), `"high"`))
	}
	info, err := s.Get(r.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	if info.Model != "gpt-5.4" {
		t.Errorf("the session's model is %q", info.Model)
	}
}
