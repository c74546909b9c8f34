package bridge

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

var update = flag.Bool("update", false, "write docs/methods.md anew")

// methodsPage shows the table to people.
const methodsPage = "../docs/methods.md"

// cliMethods are the methods of copilot.cli.v1 that callers call, by their JSON-RPC names.
func cliMethods() map[string]protoreflect.MethodDescriptor {
	methods := map[string]protoreflect.MethodDescriptor{}
	pkg := cliv1.File_copilot_cli_v1_session_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(j)
				if rules := proto.GetExtension(m.Options(), jsonv1.E_Method).(*jsonv1.MethodRules); !rules.GetCallback() {
					methods[rules.GetMethod()] = m
				}
			}
		}
		return true
	})
	return methods
}

// Every row of the tables is about methods that there are, once each, and says why.
func TestOwnMethodsExist(t *testing.T) {
	t.Parallel()
	methods := cliMethods()
	if len(methods) < 600 {
		t.Fatalf("only %d methods", len(methods))
	}
	seen := map[string]bool{}
	for _, row := range ownMethods {
		found := methods[row.method] != nil
		if strings.HasSuffix(row.method, ".") {
			for name := range methods {
				found = found || strings.HasPrefix(name, row.method)
			}
		}
		if !found || seen[row.method] || row.why == "" {
			t.Errorf("row %q: exists %t, is there twice %t, why %q", row.method, found, seen[row.method], row.why)
		}
		seen[row.method] = true
	}
	for method, rule := range keptSettings {
		if methods[method] == nil || seen[method] {
			t.Errorf("setting %q is no method, or is in the other table too", method)
		}
		if m := methods[method]; m != nil && rule.member != "" && m.Input().Fields().ByJSONName(rule.member) == nil {
			t.Errorf("setting %q has no parameter %q", method, rule.member)
		}
	}
}

// What a rpc of copilot.bridge.v1 does too goes through the same core: every method that
// answers a callback, and those that are about a session's life, its turns and its tools.
func TestCoreMethodsRunThroughTheCore(t *testing.T) {
	t.Parallel()
	core := strings.Fields(`session.create session.resume session.destroy session.detach session.delete session.send
		session.abort session.tools.set session.options.update session.model.switchTo session.permissions.setApproveAll`)
	for name := range cliMethods() {
		if strings.Contains(name, ".handlePending") || name == "session.commands.respondToQueuedCommand" {
			core = append(core, name)
		}
	}
	for _, eventType := range []string{callback.ToolRequested, callback.PermissionRequested, callback.CommandExecute} {
		core = append(core, callback.ForEvent(eventType).AnswerMethod)
	}
	if len(core) < 20 {
		t.Fatalf("found only %q", core)
	}
	for _, method := range core {
		if row := ownMethod(method); row == nil || row.run == nil {
			t.Errorf("%s is passed on, or refused", method)
		}
	}
}

// docs/methods.md says what the tables say.
func TestMethodsPage(t *testing.T) {
	t.Parallel()
	var page bytes.Buffer
	page.WriteString(`# Methods with special handling

<!-- From the tables in bridge/surface_table.go: go test ./bridge -run TestMethodsPage -update -->

The services of copilot.cli.v1 and RawService pass all methods on to the CLI, except the
methods on this page. A name that ends in a dot stands for all methods with that prefix.

## Refused

These methods return UNIMPLEMENTED with the reason METHOD_REFUSED.

| method | why | instead |
|---|---|---|
`)
	for _, row := range ownMethods {
		if row.run == nil {
			fmt.Fprintf(&page, "| `%s` | %s | %s |\n", row.method, row.why, row.instead)
		}
	}
	page.WriteString("\n## Handled by the bridge\n\n| method | why |\n|---|---|\n")
	for _, row := range ownMethods {
		if row.run != nil {
			fmt.Fprintf(&page, "| `%s` | %s |\n", row.method, row.why)
		}
	}
	page.WriteString("\n## Passed on and repeated\n\nEach of these methods changes a setting: " + whyKept + ".\n\n")
	for _, method := range slices.Sorted(maps.Keys(keptSettings)) {
		fmt.Fprintf(&page, "- `%s`\n", method)
	}
	page.WriteString(`
## Sizes and runtimes

The bridge returns a result in one message of up to 128 MiB, the largest message that it reads
from the CLI. Most gRPC libraries accept 4 MiB by default. For a larger result the library
itself returns RESOURCE_EXHAUSTED without the bridge's reason, although the CLI has carried out
the call. To call methods with large results (session.getMessages, session.eventLog.read,
session.workspaces.readFile, …), raise that limit. The Go client accepts 16 MiB. To read in
smaller pieces, use SessionService.ListEvents for the history and SessionService.ReadEvent for
a large event.

The bridge calls a method without a session in the first runtime of the server's own profile.
To use another runtime, set runtime_profile in RawService.Invoke.
`)
	if *update {
		if err := os.WriteFile(methodsPage, page.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(methodsPage); err != nil || !bytes.Equal(got, page.Bytes()) {
		t.Errorf("%s is not what the tables say (%v): run go test ./bridge -run TestMethodsPage -update", methodsPage, err)
	}
}

// invokeCLI calls a method of copilot.cli.v1 in the way the server does.
func invokeCLI[R proto.Message](r *rig, method string, request proto.Message, reply R, exact bool, requestID string) (R, error) {
	r.t.Helper()
	wire, err := proto.Marshal(request)
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := r.CallCLI(r.t.Context(), cliMethods()[method], wire, exact, requestID, nil)
	if err != nil {
		return reply, err
	}
	return reply, proto.Unmarshal(out, reply)
}

// A send of copilot.cli.v1 is a send: its turn is followed, and one with the same request
// id is the same one.
func TestSurfaceSend(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakecli.Script{})
	r.create("s1")
	send := func(id string) string {
		out, err := invokeCLI(r, "session.send", &cliv1.SessionServiceSendRequest{SessionId: "s1", Prompt: "hello"}, &cliv1.SessionServiceSendResponse{}, false, id)
		if err != nil {
			t.Fatal(err)
		}
		return out.GetMessageId()
	}
	first := send("r1")
	if first == "" || send("r1") != first || send("r2") == first {
		t.Errorf("the first message is %q; a repeated request must have the same, another one another", first)
	}
	_, err := invokeCLI(r, "session.send", &cliv1.SessionServiceSendRequest{SessionId: "s1"}, &cliv1.SessionServiceSendResponse{}, false, "")
	wantField(t, "an empty prompt", err, fault.PromptEmpty, "prompt")
	if _, err := invokeCLI(r, "session.send", &cliv1.SessionServiceSendRequest{SessionId: "s1"}, &cliv1.SessionServiceSendResponse{}, true, ""); err != nil {
		t.Errorf("an empty prompt of an exact caller: %v", err)
	}
}

// A prompt of copilot.cli.v1 whose answer a crash kept from being recorded is not sent twice: the
// history answers for session.send, the other methods fail with SEND_IN_DOUBT.
func TestInterruptedSurfaceSend(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakecli.Script{})
	r.create("s1")
	r.ask("s1", "before")
	s, err := r.open(t.Context(), "s1")
	if err != nil {
		t.Fatal(err)
	}
	at := s.Journal().Last()
	since := binary.AppendUvarint(binary.AppendUvarint(nil, at.Epoch), at.Seq)
	r.ask("s1", "hello") // the interrupted request's prompt
	params := wrapperspb.Bytes([]byte(`{"prompt":"hello"}`))
	r.remembering(idempotency.Key{Operation: operation.On("session.send", "s1"), ID: "q"}, params, since)
	q := &cliv1.SessionServiceSendRequest{SessionId: "s1", Prompt: "hello"}
	out, err := invokeCLI(r, "session.send", q, &cliv1.SessionServiceSendResponse{}, false, "q")
	if err != nil || out.GetMessageId() == "" {
		t.Errorf("session.send is answered %v, %v", out, err)
	}
	params = wrapperspb.Bytes([]byte(`{"prompt":"go"}`))
	r.remembering(idempotency.Key{Operation: operation.On("session.fleet.start", "s1"), ID: "q"}, params, since)
	fleet := &cliv1.SessionFleetServiceStartRequest{SessionId: "s1", Prompt: proto.String("go")}
	if _, err := invokeCLI(r, "session.fleet.start", fleet, &cliv1.SessionFleetServiceStartResponse{}, false, "q"); fault.ReasonOf(err) != fault.SendInDoubt {
		t.Errorf("session.fleet.start fails with %v", err)
	}
	if n := received(r.cli, "session.send") + received(r.cli, "session.fleet.start"); n != 2 {
		t.Errorf("the CLI was given %d prompts, want 2", n)
	}
}

// What is refused says why, and an exact caller is told what the CLI would have said.
func TestSurfaceRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakecli.Script{})
	_, err := invokeCLI(r, "runtime.shutdown", &cliv1.RuntimeServiceShutdownRequest{}, &cliv1.RuntimeServiceShutdownResponse{}, false, "")
	wantField(t, "runtime.shutdown", err, fault.MethodRefused, "method")
	if f, ok := fields.AsFault(err); !ok || f.RPC != nil {
		t.Errorf("a tidy caller is told %v", err)
	}
	for _, extra := range []string{`{"sessionId":"s2"}`, `{"prompt":"x"}`} {
		q := &cliv1.SessionServiceSendRequest{SessionId: "s1", JsonExtra: extra}
		_, err := invokeCLI(r, "session.send", q, &cliv1.SessionServiceSendResponse{}, false, "")
		if fault.ReasonOf(err) != fault.JSONExtraForbidden {
			t.Errorf("json_extra %s: %v", extra, err)
		}
	}
	// An exact caller's request is what its JSON says, and it is the session of that which is called.
	q := &cliv1.SessionServiceSendRequest{SessionId: "s1", JsonExtra: `{"sessionId":"s2","sessionId":"s3"}`}
	if _, err := invokeCLI(r, "session.send", q, &cliv1.SessionServiceSendResponse{}, true, ""); fault.ReasonOf(err) != fault.SessionNotFound || !strings.HasSuffix(err.Error(), "s3") {
		t.Errorf("a session in json_extra: %v", err)
	}
	_, err = invokeCLI(r, "session.mode.get", &cliv1.SessionModeServiceGetRequest{SessionId: "none"}, &cliv1.SessionModeServiceGetResponse{}, true, "")
	if f, ok := fields.AsFault(err); !ok || f.RPC == nil || f.RPC.Code != -32603 || !strings.HasSuffix(f.RPC.Message, "Session not found for sessionId: none") {
		t.Errorf("an exact caller is told %v", err)
	}
}
