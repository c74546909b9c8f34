package app

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// said is an entry in short: the members, in this order, that it has.
func said(e map[string]any) string {
	var words []string
	for _, key := range []string{"msg", "outcome", "reason", "caller", "tenant", "role", "method", "session_id",
		"owner", "with", "access", "kind", "subject", "decision"} {
		if v, ok := e[key]; ok {
			words = append(words, fmt.Sprint(v))
		}
	}
	return strings.Join(words, " ")
}

// The audit log says who made, shared and ended sessions, who allowed what, who touched the
// host, and who was turned away.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	o := startObserved(t, nil)
	ctx := t.Context()
	o.plays("acme", deploying)
	deploy(ctx, t, o.tenants, "acme-owner", "s", "go")
	owner, observer := bridgev1.NewSessionServiceClient(o.as("acme-owner")), bridgev1.NewSessionServiceClient(o.as("acme-observer"))
	if _, err := owner.ShareSession(ctx,
		&bridgev1.ShareSessionRequest{SessionId: "s", Tenant: "rival",
			Access: bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE}); err != nil {
		t.Fatal(err)
	}
	accept(t, o.as("rival"), "acme/s")
	if _, err := owner.UnshareSession(ctx,
		&bridgev1.UnshareSessionRequest{SessionId: "s", Tenant: "rival"}); err != nil {
		t.Fatal(err)
	}
	_, _ = observer.CreateSession(ctx, &bridgev1.CreateSessionRequest{SessionId: "x"})
	_, _ = cliv1.NewSessionPermissionsServiceClient(o.as("acme-owner")).SetApproveAll(ctx,
		&cliv1.SessionPermissionsServiceSetApproveAllRequest{SessionId: "s", Enabled: true})
	_, _ = cliv1.NewAccountServiceClient(o.as("operator")).Login(ctx, &cliv1.AccountServiceLoginRequest{})
	wrong := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer no-token-of-anybody")
	_, _ = bridgev1.NewSessionServiceClient(o.as("")).ListSessions(wrong, &bridgev1.ListSessionsRequest{})
	if _, err := owner.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: "s"}); err != nil {
		t.Fatal(err)
	}
	_, _ = owner.ListSessions(ctx, &bridgev1.ListSessionsRequest{}) // nothing to tell of
	o.stop()
	o.end(t)
	var got []string
	entries := o.entries(t)
	// The server writes an answer's line once the CLI has taken the answer. The next answer may arrive before that. The
	// line has the time at which the answer arrived.
	slices.SortStableFunc(entries, func(a, b map[string]any) int { return at(t, a).Compare(at(t, b)) })
	for _, e := range entries {
		if e["peer"] == nil || e["time"] == nil {
			t.Errorf("%v does not say from where, or when", e)
		}
		got = append(got, said(e))
	}
	want := []string{
		"session.create done acme-owner acme owner s",
		"callback.answer done acme-owner acme owner s permission custom-tool approve-once",
		"callback.answer done acme-owner acme owner s tool_call deploy answer",
		"session.share done acme-owner acme owner s rival read",
		"session.share_accept done rival rival owner s acme rival read",
		"session.unshare done acme-owner acme owner s rival",
		"call.refused refused FORBIDDEN acme-observer acme observer copilot.bridge.v1.SessionService/CreateSession x",
		"call.permissions done acme-owner acme owner copilot.cli.v1.SessionPermissionsService/SetApproveAll s",
		"call.host failed METHOD_UNKNOWN operator host admin copilot.cli.v1.AccountService/Login",
		"call.refused refused UNAUTHENTICATED copilot.bridge.v1.SessionService/ListSessions",
		"session.delete done acme-owner acme owner s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log says\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// at is when an entry says that it was.
func at(t *testing.T, e map[string]any) time.Time {
	t.Helper()
	text, _ := e["time"].(string)
	when, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatalf("%v: %v", e, err)
	}
	return when
}

// The bridge ends a session that a Run has created for its turn, and the audit log says so.
func TestAuditOfEndedSessions(t *testing.T) {
	t.Parallel()
	o := startObserved(t, nil)
	stream, err := bridgev1.NewSessionServiceClient(o.as("acme-owner")).Run(t.Context(), &bridgev1.RunRequest{
		Session: &bridgev1.RunRequest_Create{Create: &bridgev1.CreateSessionRequest{SessionId: "s"}},
		Prompt:  &bridgev1.Prompt{Text: "go"}})
	for err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	o.stop()
	o.end(t)
	var got []string
	for _, e := range o.entries(t) {
		got = append(got, said(e))
	}
	want := []string{"session.create done acme-owner acme owner s", "session.disconnect done bridge acme s"}
	if !slices.Equal(got, want) {
		t.Errorf("the log says %q, want %q", got, want)
	}
}

// The bridge answers callbacks that no participant answers, and the audit log says so.
func TestAuditOfDefaults(t *testing.T) {
	t.Parallel()
	o := startObserved(t, nil)
	o.plays("", deploying)
	c := bridgev1.NewSessionServiceClient(o.as("operator"))
	if _, err := c.CreateSession(t.Context(),
		&bridgev1.CreateSessionRequest{SessionId: "s", Config: &cliv1.SessionConfig{
			Tools: []*cliv1.ToolDefinition{{Name: "deploy"}},
		}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SendAndWait(t.Context(),
		&bridgev1.SendAndWaitRequest{SessionId: "s", Prompt: &bridgev1.Prompt{Text: "go"}}); err != nil {
		t.Fatal(err)
	}
	o.stop()
	o.end(t)
	var got []string
	for _, e := range o.entries(t) {
		got = append(got, said(e))
	}
	const want = "callback.default done bridge host s permission custom-tool unhandled"
	if text := strings.Join(got, "\n"); !strings.Contains(text, want) {
		t.Errorf("the log says\n%s\nand not %q", text, want)
	}
}
