package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// tenantsPolicy has two tenants, with a member for every role, and an operator.
const tenantsPolicy = `
version: 1
identity: {tokens: tokens.txt}
tenants:
  acme:
    members:
      - {token: acme-owner, role: owner}
      - {token: acme-participant, role: participant}
      - {token: acme-observer, role: observer}
  rival:
    members: [{token: rival, role: owner}]
  thief:
    members: [{token: thief, role: owner}]
  host:
    members: [{token: operator, role: admin}]
`

// walkPolicy has strangers besides who may do more: those with a sandbox.
// The walk makes more calls in a second than a tenant may by default.
var walkPolicy = strings.NewReplacer(
	"  acme:\n", "  acme:\n    limits: {requests_per_second: 0}\n",
	"  rival:\n", "  rival:\n    limits: {requests_per_second: 0}\n",
	"  thief:\n", "  thief:\n    limits: {requests_per_second: 0}\n",
).Replace(tenantsPolicy) + `  boxed:
    members: [{token: boxed, role: owner}]
    sandbox: [confine]
    limits: {requests_per_second: 0}
  locked:
    members: [{token: locked, role: owner}]
    sandbox: [confine]
    limits: {requests_per_second: 0}
`

// tenants is a server with a policy, whose every tenant has a fake CLI.
type tenants struct {
	*running
	t *testing.T

	mu   sync.Mutex
	clis map[string]*fakecli.CLI
}

// secretOf is the token of a name.
func secretOf(name string) string { return "token-of-" + name + "-0123456789" }

// writePolicy writes a policy file, and its tokens.
func writePolicy(t *testing.T, text string, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	var tokens strings.Builder
	for _, name := range names {
		sum := sha256.Sum256([]byte(secretOf(name)))
		fmt.Fprintf(&tokens, "%s %s\n", name, hex.EncodeToString(sum[:]))
	}
	for name, text := range map[string]string{"policy.yaml": text, "tokens.txt": tokens.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "policy.yaml")
}

func startTenants(t *testing.T, change func(*Config), options ...Option) *tenants {
	t.Helper()
	ts := &tenants{t: t, clis: map[string]*fakecli.CLI{}}
	c := Config{
		Listen: []string{"127.0.0.1:0"}, DataDir: t.TempDir(), PingInterval: time.Hour,
		Policy: writePolicy(t, tenantsPolicy, "acme-owner", "acme-participant", "acme-observer", "rival", "thief",
			"operator"),
	}
	if change != nil {
		change(&c)
	}
	t.Cleanup(func() {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		for _, cli := range ts.clis {
			cli.Close()
		}
	})
	runner := runtime.InProcess(func(_ context.Context, spec runtime.Spec) (io.ReadWriteCloser, error) {
		return ts.cli(spec.Profile.Tenant).Connect(), nil
	})
	ts.running = start(t, c, append(options, WithRunner(runner))...)
	return ts
}

// cli is a tenant's fake CLI.
func (ts *tenants) cli(tenant string) *fakecli.CLI {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.clis[tenant] == nil {
		ts.clis[tenant] = fakecli.New(fakecli.Options{})
	}
	return ts.clis[tenant]
}

// as returns a connection whose calls bring a token; without a name they bring none.
func (ts *tenants) as(name string) *grpc.ClientConn {
	ts.t.Helper()
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if name != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(secretOf(name))))
	}
	conn, err := grpc.NewClient(ts.Target(), options...)
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// bearer is a token as credentials.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return false }

// rpcs returns every method of every service that the server says it has.
func (ts *tenants) rpcs() (out []protoreflect.MethodDescriptor) {
	ts.t.Helper()
	stream, err := reflectionv1.NewServerReflectionClient(ts.as("operator")).ServerReflectionInfo(ts.t.Context())
	if err != nil {
		ts.t.Fatal(err)
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		ts.t.Fatal(err)
	}
	reply, err := stream.Recv()
	if err != nil {
		ts.t.Fatal(err)
	}
	_ = stream.CloseSend()
	for _, service := range reply.GetListServicesResponse().GetService() {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service.GetName()))
		if err != nil {
			ts.t.Fatalf("%s: %v", service.GetName(), err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			out = append(out, methods.Get(i))
		}
	}
	if len(out) < 600 {
		ts.t.Fatalf("only %d rpcs", len(out))
	}
	return out
}

// walked returns the rpcs that the walk calls: all of the bridge, and and of the CLI's own one in eight under the
// race detector, since one handler serves them all.
func walked(rpcs []protoreflect.MethodDescriptor) (out []protoreflect.MethodDescriptor) {
	for i, m := range rpcs {
		if i%race.Sample(8) == 0 || !strings.HasPrefix(string(m.FullName()), "copilot.cli.") {
			out = append(out, m)
		}
	}
	return out
}

// streamTime is how long a stream that nothing comes on is looked at.
const streamTime = 250 * time.Millisecond

// call makes a call with one request and returns its first reply, as text, and its status.
func call(
	ctx context.Context, conn *grpc.ClientConn, m protoreflect.MethodDescriptor, request proto.Message,
) (string, *status.Status) {
	limit := testTimeout
	if m.IsStreamingServer() {
		limit = streamTime
	}
	return callWithin(ctx, limit, conn, m, request)
}

// callWithin is call with a time limit.
func callWithin(
	ctx context.Context, limit time.Duration, conn *grpc.ClientConn, m protoreflect.MethodDescriptor,
	request proto.Message,
) (string, *status.Status) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	desc := &grpc.StreamDesc{ServerStreams: m.IsStreamingServer(), ClientStreams: m.IsStreamingClient()}
	stream, err := conn.NewStream(ctx, desc, policy.FullMethod(m))
	if err != nil {
		return "", status.Convert(err)
	}
	if err := stream.SendMsg(request); err != nil && err != io.EOF {
		return "", status.Convert(err)
	}
	_ = stream.CloseSend()
	reply := dynamicpb.NewMessage(m.Output())
	if err := stream.RecvMsg(reply); err != nil {
		return "", status.Convert(err)
	}
	return fmt.Sprint(reply), nil
}

// naming returns a request that names the session wherever one can be named, one for each
// case of its oneofs.
func naming(d protoreflect.MessageDescriptor, id string) []proto.Message {
	out := []proto.Message{name(d, id, 0, nil)}
	for i := range d.Oneofs().Len() {
		cases := d.Oneofs().Get(i).Fields()
		for j := range cases.Len() {
			out = append(out, name(d, id, 0, cases.Get(j)))
		}
	}
	return out
}

// depth bounds how far into messages names are put.
const depth = 3

func name(
	d protoreflect.MessageDescriptor, id string, level int, chosen protoreflect.FieldDescriptor,
) *dynamicpb.Message {
	m := dynamicpb.NewMessage(d)
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() && (chosen == nil || f != chosen) {
			continue
		}
		names := f.Kind() == protoreflect.StringKind && strings.Contains(string(f.Name()), "session_id")
		switch {
		case names && f.IsList():
			m.Mutable(f).List().Append(protoreflect.ValueOfString(id))
		case names && !f.IsMap():
			m.Set(f, protoreflect.ValueOfString(id))
		case f.Kind() != protoreflect.MessageKind || f.IsMap() || level >= depth:
		case f.IsList():
			if one := name(f.Message(), id, level+1, nil); one.IsValid() && proto.Size(one) > 0 {
				m.Mutable(f).List().Append(protoreflect.ValueOfMessage(one))
			}
		default:
			if one := name(f.Message(), id, level+1, nil); f == chosen || proto.Size(one) > 0 {
				m.Set(f, protoreflect.ValueOfMessage(one))
			}
		}
	}
	return m
}

// makes are the rpcs that make a session under the id they name, for any caller.
var makes = map[string]bool{
	"/copilot.bridge.v1.SessionService/CreateSession": true, "/copilot.bridge.v1.SessionService/Run": true,
	"/copilot.bridge.v1.CallbackService/Attach": true, "/copilot.cli.v1.SessionService/Create": true,
}

// answersOffers are the rpcs for which there is a difference between a session that is offered and
// one that is not.
var answersOffers = map[string]bool{
	"/copilot.bridge.v1.SessionService/AcceptShare": true, "/copilot.bridge.v1.SessionService/DeclineShare": true,
}

// The ids of the walk are equally long. The first is of a session of acme's.
const (
	theirs  = "0000aaaa-walk"
	nobodys = "0000bbbb-walk"
	canary  = "canary-text-of-acme"
)

// TestEveryRPCAsNobodyStrangerAndObserver is the walk over everything that is served.
func TestEveryRPCAsNobodyStrangerAndObserver(t *testing.T) {
	ts := startTenants(t, func(c *Config) {
		c.Internal, c.Raw = true, true
		c.Policy = writePolicy(t, walkPolicy, "acme-owner", "acme-participant", "acme-observer", "rival", "thief",
			"operator", "boxed", "locked")
	})
	owner := bridgev1.NewSessionServiceClient(ts.as("acme-owner"))
	if _, err := owner.CreateSession(t.Context(), &bridgev1.CreateSessionRequest{SessionId: theirs}); err != nil {
		t.Fatal(err)
	}
	_, err := owner.SendAndWait(t.Context(),
		&bridgev1.SendAndWaitRequest{SessionId: theirs, Prompt: &bridgev1.Prompt{Text: canary}})
	if err != nil {
		t.Fatal(err)
	}
	for _, stranger := range []string{"rival", "thief", "boxed", "locked"} {
		offer(t, ts.as("acme-owner"), theirs, stranger, toParticipate)
	}
	journal := func() string {
		events, err := owner.ListEvents(t.Context(), &bridgev1.ListEventsRequest{SessionId: theirs})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(events)
	}
	history := journal()
	before := len(ts.cli("acme").Log())
	rpcs := walked(ts.rpcs())
	t.Run("nobody", func(t *testing.T) { ts.walkNobody(t, rpcs) })
	t.Run("strangers", func(t *testing.T) {
		for name, who := range map[string][2]string{"without a sandbox": {"rival", "thief"},
			"with a sandbox": {"boxed", "locked"}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ts.walkStranger(t, rpcs, who[0], who[1])
			})
		}
	})
	if log := ts.cli("acme").Log(); len(log) != before {
		t.Errorf("acme's CLI has heard of strangers: %v", log[before:])
	}
	t.Run("observer", func(t *testing.T) { ts.walkRole(t, rpcs, "acme-observer", caller.Observer) })
	t.Run("participant", func(t *testing.T) { ts.walkDenied(t, rpcs, "acme-participant", caller.Participant) })
	t.Run("owner without a sandbox", func(t *testing.T) { ts.walkDenied(t, rpcs, "acme-owner", caller.Owner) })
	if now := journal(); now != history {
		t.Errorf("after the walk acme's session has other events:\n%s\nbefore:\n%s", now, history)
	}
}

// walkNobody makes every call without a token, and with a wrong one.
func (ts *tenants) walkNobody(t *testing.T, rpcs []protoreflect.MethodDescriptor) {
	for who, conn := range map[string]*grpc.ClientConn{"nobody": ts.as(""), "a wrong token": ts.as("made-up")} {
		for _, m := range rpcs {
			for _, request := range naming(m.Input(), theirs)[:1] {
				if _, st := call(t.Context(), conn, m, request); st.Code() != codes.Unauthenticated {
					t.Errorf("%s as %s: %v", m.FullName(), who, st)
				}
			}
		}
	}
}

// walkStranger makes every call as the owner of another tenant, about the session of acme
// and about none: there must be no difference, and nothing of acme's in either. The one with
// a sandbox may make calls of the class host, and put anything into json_extra.
func (ts *tenants) walkStranger(t *testing.T, rpcs []protoreflect.MethodDescriptor, stranger, maker string) {
	for _, name := range []string{stranger, maker} { // so that each has its CLI, with a session
		if _, err := bridgev1.NewSessionServiceClient(ts.as(name)).CreateSession(t.Context(),
			&bridgev1.CreateSessionRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	conns := map[string]*grpc.ClientConn{stranger: ts.as(stranger), maker: ts.as(maker)}
	heard := 0
	for _, m := range rpcs {
		as := stranger
		if makes[policy.FullMethod(m)] { // what one makes another would find
			as = maker
		}
		conn := conns[as]
		about, none := naming(m.Input(), theirs), naming(m.Input(), nobodys)
		if !answersOffers[policy.FullMethod(m)] { // a session that is offered is none before it is accepted
			about, none = append(about, naming(m.Input(), "acme/"+theirs)...), append(none,
				naming(m.Input(), "acme/"+nobodys)...)
		}
		for i := range about {
			before := len(ts.cli(as).Log())
			got, st := call(t.Context(), conn, m, about[i])
			between := len(ts.cli(as).Log())
			want, wantSt := call(t.Context(), conn, m, none[i])
			if m.IsStreamingServer() && plain(got, st) != plain(want, wantSt) {
				// On a busy machine a stream can have its first reply, or its error, after streamTime.
				got, st = callWithin(t.Context(), testTimeout, conn, m, about[i])
				want, wantSt = callWithin(t.Context(), testTimeout, conn, m, none[i])
			}
			if a, b := plain(got, st), plain(want, wantSt); a != b {
				t.Errorf("%s: acme's session gives\n  %s\na missing one\n  %s", m.FullName(), a, b)
			}
			if strings.Contains(got+st.String(), canary) {
				t.Errorf("%s: it tells what acme said", m.FullName())
			}
			// Calls that take time are calls of a CLI.
			log := ts.cli(as).Log()
			a, b := asked(log[before:between]), asked(log[between:])
			if heard += len(a); a != b && !m.IsStreamingServer() {
				t.Errorf("%s: for acme's session the CLI is asked\n  %s\nfor a missing one\n  %s", m.FullName(), a, b)
			}
		}
		ts.smuggle(t, conn, m)
	}
	if heard == 0 {
		t.Error("the strangers' CLIs were asked nothing")
	}
}

// plain is an answer without what differs anyway.
func plain(reply string, st *status.Status) string {
	text := reply
	switch {
	case st == nil:
	case st.Code() == codes.DeadlineExceeded: // gRPC's own, in its own words
		text = st.Code().String()
	default:
		text = fmt.Sprint(st.Code(), " ", st.Message(), " ", st.Details())
	}
	for _, field := range volatile {
		text = cut(text, field)
	}
	// Zero values are not written, and protobuf's spaces vary.
	return strings.NewReplacer(theirs, "ID", nobodys, "ID", " ", "", "seq:", "", "nanos:", "").Replace(text)
}

// volatile are fields that differ from call to call.
var volatile = []string{"participant_id:", "token:", "seconds:", "nanos:", "epoch:", "seq:", "message_id:", "id:",
	"timestamp:"}

// cut takes the values of a field out of a message's text.
func cut(text, field string) string {
	var out strings.Builder
	for {
		i := strings.Index(text, field)
		if i < 0 {
			return out.String() + text
		}
		out.WriteString(text[:i+len(field)])
		text = text[i+len(field):]
		if end := strings.IndexAny(text, " }"); end >= 0 {
			text = text[end:]
		}
	}
}

// walkRole checks that a role may make exactly the calls of its classes.
func (ts *tenants) walkRole(t *testing.T, rpcs []protoreflect.MethodDescriptor, name string, role caller.Role) {
	ts.walkDenied(t, rpcs, name, role)
	conn := ts.as(name)
	for _, m := range rpcs {
		if class := policy.Class(policy.FullMethod(m)); (caller.Caller{Tenant: "acme", Role: role}).May(class) {
			if _, st := call(t.Context(), conn, m,
				naming(m.Input(), theirs)[0]); slices.Contains([]codes.Code{codes.PermissionDenied,
				codes.Unauthenticated}, st.Code()) {
				t.Errorf("%s is of the class %q, and %s gets %v", m.FullName(), class, name, st)
			}
		}
	}
}

// walkDenied makes the calls that a role may not make.
func (ts *tenants) walkDenied(t *testing.T, rpcs []protoreflect.MethodDescriptor, name string, role caller.Role) {
	conn := ts.as(name)
	denied := 0
	for _, m := range rpcs {
		class := policy.Class(policy.FullMethod(m))
		if class == caller.Unclassed {
			t.Errorf("%s has no class", m.FullName())
		}
		if (caller.Caller{Tenant: "acme", Role: role}).May(class) {
			continue
		}
		denied++
		if _, st := call(t.Context(), conn, m, naming(m.Input(), theirs)[0]); st.Code() != codes.PermissionDenied {
			t.Errorf("%s is of the class %q, and %s gets %v", m.FullName(), class, name, st)
		}
	}
	t.Logf("%d of %d rpcs denied to %s", denied, len(rpcs), name)
}

// A caller of one tenant does not become one of another by saying so.
func TestTenantCannotBeChosen(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, nil)
	ctx := metadata.AppendToOutgoingContext(t.Context(), policy.MetadataTenant, "acme")
	_, err := bridgev1.NewRuntimeServiceClient(ts.as("rival")).GetServerInfo(ctx, &bridgev1.GetServerInfoRequest{})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("as acme: %v", err)
	}
}
