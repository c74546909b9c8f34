package redact_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/server/redact"
)

func TestMessage(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]proto.Message{
		"string": &bridgev1.ProvideCredentialsRequest{SessionId: "keep", GithubToken: "hunter2"},
		"map, nested": &bridgev1.SendRequest{SessionId: "keep",
			Prompt: &bridgev1.Prompt{RequestHeaders: map[string]string{"a": "hunter2"}}},
		"opaque JSON": &bridgev1.InvokeRequest{SessionId: "keep", ParamsJson: `"hunter2"`},
		"json_extra": &bridgev1.SendRequest{SessionId: "keep",
			Prompt: &bridgev1.Prompt{JsonExtra: `{"x":"hunter2"}`}},
		"inside a list": &bridgev1.ListEventsResponse{NextPageToken: "keep",
			Events: []*bridgev1.Event{{OriginalJson: proto.String("hunter2")}}},
		"inside a map": &cliv1.AccountServiceGetQuotaResponse{QuotaSnapshots: map[string]*cliv1.AccountQuotaSnapshot{
			"keep": {JsonExtra: `{"x":"hunter2"}`},
		}},
		"inside a oneof": &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Started{Started: &bridgev1.AttachStarted{
			ParticipantId: "keep", ParticipantToken: "hunter2",
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := proto.Clone(m)
			got := redact.Message(m)
			if strings.Contains(got, "hunter2") || !strings.Contains(got, "keep") {
				t.Errorf("Message = %s", got)
			}
			if !proto.Equal(before, m) {
				t.Error("the message itself was changed")
			}
		})
	}
}

func TestMessageIsCut(t *testing.T) {
	t.Parallel()
	got := redact.Message(&bridgev1.SendRequest{Prompt: &bridgev1.Prompt{Text: strings.Repeat("ä", 1<<20)}})
	if len(got) > 5<<10 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"401 for ghp_abcdefghijk012345",
		"header Authorization: Bearer eyJhbGciOi.x.y",
		"provider sk-live-0123456789abcdef refused",
		`body {"api_key": "hunter2hunter2"}`,
		"GET /x?token=hunter2hunter2&y=1",
	} {
		got := redact.Text(s)
		if !strings.Contains(got, redact.Mark) || strings.Contains(got, "hunter2") ||
			strings.Contains(got, "abcdefgh") || strings.Contains(got, "eyJ") {
			t.Errorf("Text(%q) = %q", s, got)
		}
	}
	if s := `session "s1": no such file`; redact.Text(s) != s {
		t.Errorf("Text(%q) = %q", s, redact.Text(s))
	}
}
