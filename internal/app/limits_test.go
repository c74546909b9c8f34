package app

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// limited is a server whose tenant acme has the limits, and rival none.
func limited(t *testing.T, limits string) *tenants {
	t.Helper()
	return startTenants(t, func(c *Config) {
		c.Policy = writePolicy(t, `
version: 1
identity: {tokens: tokens.txt}
tenants:
  acme: {members: [{token: acme, role: owner}], limits: {`+limits+`}}
  rival: {members: [{token: rival, role: owner}]}
`, "acme", "rival")
	})
}

// over checks that a call was refused for a limit, and that others are not.
func over(t *testing.T, limit string, err error) {
	t.Helper()
	st := status.Convert(err)
	subject, retry := "", false
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.QuotaFailure:
			subject = d.GetViolations()[0].GetSubject()
		case *errdetails.RetryInfo:
			retry = d.GetRetryDelay().AsDuration() > 0
		}
	}
	if st.Code() != codes.ResourceExhausted || subject != limit {
		t.Errorf("%s: %v, about %q", limit, st, subject)
	}
	if unpassing := limit == "message_bytes" || limit == "prompt_bytes"; retry == unpassing {
		t.Errorf("%s: it says when to try again: %v", limit, retry)
	}
}

// makeSessions makes sessions, and returns the error of the first that is refused.
func makeSessions(t *testing.T, conn *grpc.ClientConn, n int) error {
	t.Helper()
	for i := range n {
		_, err := bridgev1.NewSessionServiceClient(conn).CreateSession(t.Context(),
			&bridgev1.CreateSessionRequest{SessionId: fmt.Sprint("s", i)})
		if err != nil {
			return err
		}
	}
	return nil
}

// exceeding are, by the names of limits, some of them, and what is too much for them.
var exceeding = map[string]struct {
	limits string
	exceed func(t *testing.T, conn *grpc.ClientConn) error
}{
	"sessions": {"sessions: 2",
		func(t *testing.T, c *grpc.ClientConn) error { return makeSessions(t, c, 3) }},
	"loaded_sessions": {"loaded_sessions: 2",
		func(t *testing.T, c *grpc.ClientConn) error { return makeSessions(t, c, 3) }},
	"runtimes":                  {"runtimes: 1", twoRuntimes},
	"runtime_starts_per_minute": {"runtime_starts_per_minute: 1", twoRuntimes},
	"streams":                   {"streams: 2", threeStreams},
	"participants":              {"participants: 1", twoParticipants},
	"turns":                     {"turns: 1", twoTurns},
	"message_bytes":             {"message_bytes: 2000", longMessage},
	"requests_per_second":       {"requests_per_second: 0.01, burst: 5", sixCalls},
	"journal_bytes":             {"journal_bytes: 1", twoTurns},
	"calls":                     {"calls: 1", twoCalls},
	"remembered_requests":       {"remembered_requests: 2", threeRequests},
	"remembered_bytes":          {"remembered_bytes: 1500", threeRequests},
	"prompt_bytes":              {"prompt_bytes: 1", twoTurns},
}

// unlike calls exercise these limits, and none is refused. Package server tests the limits of connections and of their
// requests.
var unlike = []string{
	"burst", "pending_callbacks", "runtime_memory_bytes",
	"connections", "caller_connections", "request_bytes", "caller_request_bytes", "connection_request_bytes",
}

// Every limit of a policy file is tried.
func TestEveryLimitIsTried(t *testing.T) {
	t.Parallel()
	limits := reflect.TypeFor[quota.Limits]()
	for i := range limits.NumField() {
		name := limits.Field(i).Tag.Get("yaml")
		if _, ok := exceeding[name]; ok == slices.Contains(unlike, name) {
			t.Errorf("limit %q is tried as one that calls are refused for: %v", name, ok)
		}
	}
}

// A load that is too much for one tenant is fine for another.
func TestLimitsAreATenantsOwn(t *testing.T) {
	t.Parallel()
	for limit, tc := range exceeding {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			ts := limited(t, tc.limits)
			ts.slow("acme")
			ts.slow("rival")
			over(t, limit, tc.exceed(t, ts.as("acme")))
			if err := tc.exceed(t, ts.as("rival")); err != nil {
				t.Errorf("the other tenant gets %v", err)
			}
		})
	}
}

// The same limits hold for all tenants together: usage of one tenant leaves less for another, and the error says that
// other tenants caused it.
func TestLimitsOfEverybody(t *testing.T) {
	t.Parallel()
	for limit, tc := range exceeding {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			ts := startTenants(t, func(c *Config) {
				impatient(c)
				c.Policy = writePolicy(t, `
version: 1
identity: {tokens: tokens.txt}
limits: {`+tc.limits+`}
tenants:
  acme: {members: [{token: acme, role: owner}]}
  rival: {members: [{token: rival, role: owner}]}
`, "acme", "rival")
			})
			ts.slow("acme")
			ts.slow("rival")
			over(t, limit, tc.exceed(t, ts.as("acme")))
			if err := tc.exceed(t, ts.as("rival")); err == nil ||
				!strings.Contains(err.Error(), "the server's limit "+limit) {
				t.Errorf("the other tenant gets %v", err)
			}
		})
	}
}

// slow gives a tenant a CLI whose turns do not end by themselves.
func (ts *tenants) slow(tenant string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.clis[tenant] = fakecli.New(fakecli.Options{Script: fakecli.Script{Prompts: []fakecli.Prompt{{Turns: []fakecli.Turn{{Hang: true}}}}}})
}

// threeRequests are requests that could come again.
func threeRequests(t *testing.T, c *grpc.ClientConn) error {
	for i := range 3 {
		_, err := bridgev1.NewSessionServiceClient(c).CreateSession(t.Context(),
			&bridgev1.CreateSessionRequest{RequestId: fmt.Sprint("r", i)})
		if err != nil {
			return err
		}
	}
	return nil
}

func twoRuntimes(t *testing.T, c *grpc.ClientConn) error {
	if err := makeSessions(t, c, 1); err != nil {
		return err
	}
	_, err := bridgev1.NewSessionServiceClient(c).CreateSession(t.Context(), &bridgev1.CreateSessionRequest{
		RuntimeProfile: &bridgev1.RuntimeProfile{LogLevel: "debug"},
	})
	return err
}

func threeStreams(t *testing.T, c *grpc.ClientConn) error {
	if err := makeSessions(t, c, 1); err != nil {
		return err
	}
	for range 3 {
		stream, err := bridgev1.NewEventServiceClient(c).Subscribe(t.Context(),
			&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s0"}}})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func twoParticipants(t *testing.T, c *grpc.ClientConn) error {
	if err := makeSessions(t, c, 1); err != nil {
		return err
	}
	for range 2 {
		stream, err := bridgev1.NewCallbackServiceClient(c).Attach(t.Context())
		if err == nil {
			err = stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
				Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: "s0"},
			}}})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func twoTurns(t *testing.T, c *grpc.ClientConn) error {
	if err := makeSessions(t, c, 2); err != nil {
		return err
	}
	for i := range 2 {
		_, err := bridgev1.NewSessionServiceClient(c).Send(t.Context(), &bridgev1.SendRequest{
			SessionId: fmt.Sprint("s", i), Prompt: &bridgev1.Prompt{Text: "hi"},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func twoCalls(t *testing.T, c *grpc.ClientConn) error {
	if err := makeSessions(t, c, 1); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := waited(ctx, t, c, "s0")
	awaitRunning(t, c, "s0", 1)
	_, err := bridgev1.NewRuntimeServiceClient(c).GetServerInfo(t.Context(), &bridgev1.GetServerInfoRequest{})
	first.still(t, "a call under way")
	return err
}

func longMessage(t *testing.T, c *grpc.ClientConn) error {
	text := string(make([]byte, 4000))
	_, err := bridgev1.NewRuntimeServiceClient(c).Ping(t.Context(), &bridgev1.PingRequest{Message: text})
	return err
}

func sixCalls(t *testing.T, c *grpc.ClientConn) error {
	for range 6 {
		if _, err := bridgev1.NewRuntimeServiceClient(c).GetServerInfo(t.Context(),
			&bridgev1.GetServerInfoRequest{}); err != nil {
			return err
		}
	}
	return nil
}

// A prompt that is too long for a tenant is one that is too long.
func TestPromptLimitOfATenant(t *testing.T) {
	t.Parallel()
	ts := limited(t, "prompt_bytes: 10")
	info, err := bridgev1.NewRuntimeServiceClient(ts.as("acme")).GetServerInfo(t.Context(),
		&bridgev1.GetServerInfoRequest{})
	if err != nil || info.GetLimits().GetMaxPromptBytes() != 10 {
		t.Errorf("the limit that is told is %v, %v", info.GetLimits(), err)
	}
	for name, want := range map[string]codes.Code{"acme": codes.ResourceExhausted, "rival": codes.OK} {
		conn := ts.as(name)
		if err := makeSessions(t, conn, 1); err != nil {
			t.Fatal(err)
		}
		_, err := bridgev1.NewSessionServiceClient(conn).Send(t.Context(),
			&bridgev1.SendRequest{SessionId: "s0", Prompt: &bridgev1.Prompt{Text: "longer than ten"}})
		if status.Code(err) != want {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// Callbacks beyond the limit are answered by their fallback at once: the turn goes on.
func TestPendingCallbacksOfATenant(t *testing.T) {
	t.Parallel()
	ts := limited(t, "pending_callbacks: 1")
	for _, name := range []string{"acme", "rival"} {
		ts.mu.Lock()
		ts.clis[name] = fakecli.New(fakecli.Options{Script: fakecli.Script{Prompts: []fakecli.Prompt{{Turns: []fakecli.Turn{
			{Tools: []fakecli.Tool{{Name: "work"}, {Name: "work"}}}, {Text: "done"},
		}}}}})
		ts.mu.Unlock()
	}
	skip := true
	for name, want := range map[string]int{"acme": 1, "rival": 2} {
		conn := ts.as(name)
		client := bridgev1.NewSessionServiceClient(conn)
		_, err := client.CreateSession(t.Context(),
			&bridgev1.CreateSessionRequest{SessionId: "s0", Config: &cliv1.SessionConfig{
				Tools: []*cliv1.ToolDefinition{{Name: "work", SkipPermission: &skip}},
			}})
		if err == nil {
			_, err = client.Send(t.Context(),
				&bridgev1.SendRequest{SessionId: "s0", Prompt: &bridgev1.Prompt{Text: "go"}})
		}
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		stream, err := bridgev1.NewEventServiceClient(conn).Subscribe(t.Context(), &bridgev1.SubscribeRequest{
			Callbacks: true,
			Sessions:  []*bridgev1.SessionCursor{{SessionId: "s0", Start: bridgev1.StreamStart_STREAM_START_BEGINNING}},
		})
		for seen := 0; err == nil && seen < 2; {
			var f *bridgev1.SubscribeResponse
			if f, err = stream.Recv(); err != nil {
				break
			}
			for _, e := range f.GetEvents().GetEvents() {
				if e.GetEvent().GetEventType() == "external_tool.requested" {
					seen++
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		pending, err := bridgev1.NewCallbackServiceClient(conn).ListPending(t.Context(),
			&bridgev1.ListPendingRequest{SessionId: "s0"})
		if err != nil {
			t.Fatal(err)
		}
		if asked = len(pending.GetCallbacks()); asked != want {
			t.Errorf("%s has %d callbacks pending, want %d", name, asked, want)
		}
	}
}

// Where the policy does not say how many CLI processes a tenant may have, it has its share.
func TestRuntimesAreShared(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, func(c *Config) { c.MaxRuntimes = 9 }) // of three tenants and the host's own
	profiles := []string{"debug", "info", "warning"}
	take := func(name string) (taken int, err error) {
		for _, level := range profiles {
			_, err = bridgev1.NewSessionServiceClient(ts.as(name)).CreateSession(t.Context(),
				&bridgev1.CreateSessionRequest{
					RuntimeProfile: &bridgev1.RuntimeProfile{LogLevel: level},
				})
			if err != nil {
				return taken, err
			}
			taken++
		}
		return taken, nil
	}
	for _, name := range []string{"acme-owner", "rival", "thief"} {
		taken, err := take(name)
		if over(t, "runtimes", err); taken != 2 {
			t.Errorf("%s has %d runtimes, want 2", name, taken)
		}
	}
	if taken, err := take("operator"); taken != len(profiles) || err != nil {
		t.Errorf("the host's owner has %d runtimes, %v", taken, err)
	}
}
