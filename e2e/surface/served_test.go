package surface

import (
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// Every method of the CLI belongs to a service that the server lists, but for the methods that the CLI marks internal:
// they are off unless the server is configured otherwise.
func TestSurfaceIsServed(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	api := reflected(t, r)
	served, internal := 0, 0
	for name, rpc := range api.methods {
		rules := methodRules(rpc)
		if rules.GetCallback() {
			continue
		}
		service := string(rpc.Parent().FullName())
		if api.served[service] == rules.GetInternal() {
			t.Errorf("%s: internal is %v, and %s is served is %v", name, rules.GetInternal(), service,
				api.served[service])
		}
		if served++; rules.GetInternal() {
			internal++
		}
	}
	for service := range api.served {
		if strings.HasPrefix(service, cliPackage+".Callback") {
			t.Errorf("%s is served, though the CLI calls it", service)
		}
	}
	if served < 600 {
		t.Errorf("%d methods", served)
	}
	t.Logf("%d methods, %d of them internal", served, internal)
}

// A client of these protos that calls what an old CLI does not know yet gets UNIMPLEMENTED
// with a reason from each such method, and nothing else is harmed.
func TestNewClientOldCLI(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	api := reflected(t, r)
	s := r.Session(r.Options())
	conn, err := grpc.NewClient(r.Host.Target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	called := 0
	for name, rpc := range api.methods {
		rules := methodRules(rpc)
		if rules.GetCallback() || rules.GetInternal() || rules.GetSince() == "" || !r.Before(rules.GetSince()) {
			continue
		}
		called++
		request := dynamicpb.NewMessage(rpc.Input())
		filler{}.fill(request, 0)
		if f := rpc.Input().Fields().ByName("session_id"); f != nil {
			request.Set(f, protoreflect.ValueOfString(s.ID()))
		}
		err := conn.Invoke(r.Ctx, "/"+string(rpc.Parent().FullName())+"/"+string(rpc.Name()), request,
			dynamicpb.NewMessage(rpc.Output()))
		if status.Code(err) != codes.Unimplemented || reasonIn(err) == "" {
			t.Errorf("%s: got %v (reason %q), want UNIMPLEMENTED with a reason", name, err, reasonIn(err))
		}
	}
	if r.Before("1.0.102") && called < 30 { // 1.0.92 lacks the fewest
		t.Errorf("only %d methods are newer than CLI %s", called, r.Host.CLI)
	}
	if out, err := s.SendAndWait(r.Ctx, "still there?"); err != nil || out.Err() != nil {
		t.Errorf("a turn after all that: %v, %v", out, err)
	}
	t.Logf("%d methods are newer than CLI %s", called, r.Host.CLI)
}

// reasonIn is the reason of a status.
func reasonIn(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}
