package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// asked are the methods that the CLI was called with.
func asked(log []fakecli.Entry) string {
	var methods []string
	for _, e := range log {
		if e.Kind == fakecli.EntryReceived {
			methods = append(methods, e.Type)
		}
	}
	return strings.Join(methods, " ")
}

// smuggle names acme's session where the contract has no place for it.
func (ts *tenants) smuggle(t *testing.T, conn *grpc.ClientConn, m protoreflect.MethodDescriptor) {
	for _, extra := range []string{`{"sessionId":"` + theirs + `"}`, `{"sessionId":null,"sessionId":"` + theirs + `"}`,
		`{"\u0073essionId":"` + theirs + `"}`} {
		for _, request := range smuggling(m.Input(), extra, 0) {
			top := m.Input().Fields().ByName("json_extra")
			if outside := top != nil && request.Has(top); !outside && m.IsStreamingServer() {
				continue // it would only be waited for
			}
			got, st := call(t.Context(), conn, m, request)
			if top != nil && request.Has(top) && st.Code() != codes.InvalidArgument &&
				st.Code() != codes.PermissionDenied {
				t.Errorf("%s: %s in json_extra gives %v, %q", m.FullName(), extra, st, got)
			}
			if strings.Contains(got+st.String(), canary) {
				t.Errorf("%s: with %v it tells what acme said", m.FullName(), request)
			}
		}
	}
}

// smuggling returns requests with json_extra at the top, and in each of the messages in it.
func smuggling(d protoreflect.MessageDescriptor, extra string, level int) (out []*dynamicpb.Message) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		switch {
		case f.Name() == "json_extra":
			m := dynamicpb.NewMessage(d)
			m.Set(f, protoreflect.ValueOfString(extra))
			out = append(out, m)
		case f.Kind() == protoreflect.MessageKind && !f.IsMap() && !f.IsList() && level < 1:
			for _, inner := range smuggling(f.Message(), extra, level+1) {
				m := dynamicpb.NewMessage(d)
				m.Set(f, protoreflect.ValueOfMessage(inner))
				out = append(out, m)
			}
		}
	}
	return out
}

// A foreign id takes the same time as a missing one.
func TestForeignIDsTakeTheTimeOfMissingOnes(t *testing.T) { //nolint:paralleltest // it measures
	const theirs, nobodys, rounds = "0000aaaa-time", "0000bbbb-time", 1500
	ts := startTenants(t, func(c *Config) { // without a limit on how often
		c.Policy = writePolicy(t, strings.ReplaceAll(tenantsPolicy, "role: owner}]", "role: owner}]\n    limits: "+
			"{requests_per_second: 0}"),
			"acme-owner", "acme-participant", "acme-observer", "rival", "thief", "operator")
	})
	if _, err := bridgev1.NewSessionServiceClient(ts.as("acme-owner")).CreateSession(t.Context(),
		&bridgev1.CreateSessionRequest{SessionId: theirs}); err != nil {
		t.Fatal(err)
	}
	rival := bridgev1.NewSessionServiceClient(ts.as("rival"))
	times := map[string][]time.Duration{}
	for range rounds {
		for _, id := range []string{theirs, nobodys} { // by turns, so that what else goes on hits both
			begin := time.Now()
			_, err := rival.GetSession(t.Context(), &bridgev1.GetSessionRequest{SessionId: id})
			times[id] = append(times[id], time.Since(begin))
			if status.Code(err) != codes.NotFound {
				t.Fatal(err)
			}
		}
	}
	// A look further would be in the fastest calls too; noise is in the slow ones.
	typical := func(id string) time.Duration {
		slices.Sort(times[id])
		return times[id][rounds/4]
	}
	foreign, missing := typical(theirs), typical(nobodys)
	t.Logf("foreign %v, missing %v", foreign, missing)
	if foreign > missing*3/2 || missing > foreign*3/2 {
		t.Errorf("a foreign id takes %v, a missing one %v", foreign, missing)
	}
}

// By default no caller, not even the operator, may use methods that pass anything on, or for which the CLI promises
// nothing.
func TestRawAndInternalAreOff(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, nil)
	_, err := bridgev1.NewRawServiceClient(ts.as("operator")).Invoke(t.Context(),
		&bridgev1.InvokeRequest{Method: "ping"})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("RawService: %v", err)
	}
	internals := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("copilot.cli.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(j)
				if rules, _ := proto.GetExtension(m.Options(),
					jsonv1.E_Method).(*jsonv1.MethodRules); !rules.GetInternal() || rules.GetCallback() {
					continue
				}
				internals++
				if _, st := call(t.Context(), ts.as("operator"), m,
					dynamicpb.NewMessage(m.Input())); st.Code() != codes.Unimplemented {
					t.Errorf("%s: %v", m.FullName(), st)
				}
			}
		}
		return true
	})
	if internals == 0 {
		t.Error("no internal method was found")
	}
}
