package app

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// open is a call under way: its end comes from ended.
type open struct {
	name  string
	ended chan error
	// closed is why the session's frames on it ended, once ended has come.
	closed bridgev1.CloseReason
}

// calls begins one call of each kind that lasts, about a session in which no turn ends, and
// returns when all of them are under way.
func calls(ctx context.Context, t *testing.T, conn *grpc.ClientConn, id string) []*open {
	t.Helper()
	all := []*open{subscribed(ctx, t, conn, id), attached(ctx, t, conn, id), ran(ctx, t, conn, id),
		waited(ctx, t, conn, id)}
	awaitRunning(t, conn, id, 2) // of Run and SendAndWait
	return all
}

func begun(name string) *open { return &open{name: name, ended: make(chan error, 1)} }

// drained reads a stream to its end, and returns that.
func drained[F any](stream grpc.ServerStreamingClient[F]) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

func subscribed(ctx context.Context, t *testing.T, conn *grpc.ClientConn, id string) *open {
	t.Helper()
	o := begun("Subscribe")
	stream, err := bridgev1.NewEventServiceClient(conn).Subscribe(ctx,
		&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: id}}})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			f, err := stream.Recv()
			if err != nil {
				o.ended <- err
				return
			}
			if c := f.GetClosed(); c != nil {
				o.closed = c.GetReason()
			}
		}
	}()
	return o
}

func attached(ctx context.Context, t *testing.T, conn *grpc.ClientConn, id string) *open {
	t.Helper()
	o := begun("Attach")
	stream, err := bridgev1.NewCallbackServiceClient(conn).Attach(ctx)
	if err == nil {
		err = stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
			Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: id},
		}}})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() { o.ended <- drained(stream) }()
	return o
}

func ran(ctx context.Context, t *testing.T, conn *grpc.ClientConn, id string) *open {
	t.Helper()
	o := begun("Run")
	stream, err := bridgev1.NewSessionServiceClient(conn).Run(ctx, &bridgev1.RunRequest{
		Session: &bridgev1.RunRequest_SessionId{SessionId: id}, Prompt: &bridgev1.Prompt{Text: "run"},
	})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() { o.ended <- drained(stream) }()
	return o
}

func waited(ctx context.Context, t *testing.T, conn *grpc.ClientConn, id string) *open {
	t.Helper()
	o := begun("SendAndWait")
	go func() {
		_, err := bridgev1.NewSessionServiceClient(conn).SendAndWait(ctx,
			&bridgev1.SendAndWaitRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: "wait"}})
		o.ended <- err
	}()
	return o
}

// awaitRunning waits until the session's CLI has been sent so many messages.
func awaitRunning(t *testing.T, conn *grpc.ClientConn, id string, messages int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := bridgev1.NewEventServiceClient(conn).Subscribe(ctx, &bridgev1.SubscribeRequest{
		Sessions: []*bridgev1.SessionCursor{{SessionId: id, Start: bridgev1.StreamStart_STREAM_START_BEGINNING}},
	})
	// The first changes what is pending twice, when it is sent and when its turn begins, and is
	// a user.message; those behind it are pending, since no turn ends.
	for seen := 0; seen < messages+2; {
		var f *bridgev1.SubscribeResponse
		if err == nil {
			f, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range f.GetEvents().GetEvents() {
			if kind := e.GetEvent().GetEventType(); kind == "user.message" || kind == "pending_messages.modified" {
				seen++
			}
		}
	}
}

// impatient does not wait for turns that do not end.
func impatient(c *Config) { c.DrainGrace = 50 * time.Millisecond }

// still tells that a call is under way.
func (o *open) still(t *testing.T, what string) {
	t.Helper()
	select {
	case err := <-o.ended:
		t.Errorf("%s: %s has ended: %v", what, o.name, err)
	default:
	}
}

// Streams and calls of a guest end when the session is not shared with it any more, or with fewer rights.
func TestUnsharingEndsWhatIsOpen(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, impatient)
	ts.slow("acme")
	owner, guest := ts.as("acme-owner"), ts.as("rival")
	acme := bridgev1.NewSessionServiceClient(owner)
	if _, err := acme.CreateSession(t.Context(), &bridgev1.CreateSessionRequest{SessionId: "s"}); err != nil {
		t.Fatal(err)
	}
	offer(t, owner, "s", "rival", toParticipate)
	accept(t, guest, "acme/s")
	own := attached(t.Context(), t, owner, "s")
	guests := calls(t.Context(), t, guest, "acme/s")
	offer(t, owner, "s", "rival", toObserve)
	for _, o := range guests[1:] {
		wantCode(t, o.name, <-o.ended, codes.NotFound)
	}
	guests[0].still(t, "shared for less")
	if s, err := acme.GetSession(t.Context(), &bridgev1.GetSessionRequest{SessionId: "s"}); err != nil ||
		len(s.GetSession().GetParticipants()) != 1 {
		t.Errorf("participants are %v, %v", s.GetSession().GetParticipants(), err)
	}
	if _, err := acme.UnshareSession(t.Context(),
		&bridgev1.UnshareSessionRequest{SessionId: "s", Tenant: "rival"}); err != nil {
		t.Fatal(err)
	}
	if err := <-guests[0].ended; err.Error() != "EOF" ||
		guests[0].closed != bridgev1.CloseReason_CLOSE_REASON_UNSHARED {
		t.Errorf("Subscribe ended with %v, closed for %v", err, guests[0].closed)
	}
	own.still(t, "unshared")
}

// Streams and calls of a caller end when the policy takes its rights away, and only then.
func TestPolicyEndsWhatIsOpen(t *testing.T) {
	t.Parallel()
	const role = "{token: acme-participant, role: participant}"
	for name, tc := range map[string]struct {
		from, to string
		want     codes.Code // OK: everything goes on
	}{
		"a member goes":  {"      - " + role + "\n", "", codes.PermissionDenied},
		"a role is less": {role, "{token: acme-participant, role: observer}", codes.PermissionDenied},
		"a role is more": {role, "{token: acme-participant, role: owner}", codes.OK},
		"another tenant as well": {"members: [{token: rival, role: owner}]",
			"members: [{token: rival, role: owner}, " + role[:len(role)-len(" participant}")] + " observer}]",
			codes.OK},
		"something else":         {"  thief:\n    members: [{token: thief, role: owner}]\n", "", codes.OK},
		"a token is another one": {"", "", codes.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var path string
			ts := startTenants(t, func(c *Config) { path = c.Policy; impatient(c) })
			ts.slow("acme")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if err := makeSessions(t, ts.as("acme-owner"), 1); err != nil {
				t.Fatal(err)
			}
			own := subscribed(ctx, t, ts.as("acme-owner"), "s0")
			others := calls(ctx, t, ts.as("acme-participant"), "s0")
			changePolicy(t, path, tc.from, tc.to)
			if err := ts.policy.Reload(); err != nil {
				t.Fatal(err)
			}
			for _, o := range others {
				if tc.want == codes.OK {
					o.still(t, name)
					continue
				}
				if err := <-o.ended; status.Code(err) != tc.want {
					t.Errorf("%s ended with %v, want %v", o.name, err, tc.want)
				}
			}
			// a caller without a right to it has no place
			places := map[bool]int{true: 1, false: 0}[tc.want == codes.OK]
			got, err := bridgev1.NewSessionServiceClient(ts.as("acme-owner")).GetSession(ctx,
				&bridgev1.GetSessionRequest{SessionId: "s0"})
			if err != nil || len(got.GetSession().GetParticipants()) != places {
				t.Errorf("participants are %v, %v, want %d", got.GetSession().GetParticipants(), err, places)
			}
			own.still(t, name)
		})
	}
}

// changePolicy writes a policy anew; without from it is the token of acme-participant that
// changes.
func changePolicy(t *testing.T, path, from, to string) {
	t.Helper()
	if from == "" {
		path = strings.TrimSuffix(path, "policy.yaml") + "tokens.txt"
		text := readText(t, path)
		_, line, _ := strings.Cut(text, "acme-participant ")
		digest, _, _ := strings.Cut(line, "\n")
		from, to = digest, strings.Repeat("5", len(digest))
	}
	text := readText(t, path)
	if !strings.Contains(text, from) {
		t.Fatalf("%q is not in %s", from, text)
	}
	write(t, path, strings.Replace(text, from, to, 1))
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The calls of load balancers end too: the right to watch can be withdrawn.
func TestPolicyEndsHealthWatch(t *testing.T) {
	t.Parallel()
	var path string
	ts := startTenants(t, func(c *Config) { path = c.Policy })
	watch, err := healthv1.NewHealthClient(ts.as("rival")).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	changePolicy(t, path, "  rival:\n    members: [{token: rival, role: owner}]\n", "")
	if err := ts.policy.Reload(); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = watch.Recv()
	}
	wantCode(t, "watching", err, codes.PermissionDenied)
}
