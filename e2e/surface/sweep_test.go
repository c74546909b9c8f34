package surface

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/corpus"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/reference"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
)

const (
	// sweepDeadline is how long a method of the sweep may take. A slower one waits for something that never comes here,
	// and that is an answer too.
	sweepDeadline = 5 * time.Second
	// sweepers is how many methods are called at once.
	sweepers = 24
)

// untouched are the methods that the sweep does not call, and why.
var untouched = map[string]string{
	"sandbox.proxyCa.trust":    "changes what the machine trusts",
	"sandbox.proxyCa.remove":   "changes what the machine trusts",
	"sandbox.proxySecret.save": "writes to the user's keychain",
	"account.login":            "opens a browser",
}

// unhandled are the methods that the schemas list and no CLI process answers that callers
// can start: they are for a host that has the CLI inside itself.
var unhandled = []string{"session.mcp.configureGitHub", "session.workflow.runFromTool",
	"session.workflow.resumeFromTool", "session.factory.runFromTool", "session.factory.resumeFromTool"}

// complaint is what the CLI says of parameters that are missing, unknown or of another
// type: such a request does not follow from the schema.
var complaint = regexp.MustCompile("(?i)missing field|unknown field|unknown variant|invalid type|did not match any " +
	"variant|expected (string|object|number|boolean|array) parameter|invalid params|must be (a|an) " +
	"(string|object|number|boolean|array)")

// Every method is called twice with parameters that follow from its descriptor alone: once
// with what it requires, and once with all that it has. Its answer
// is typed or the CLI's own refusal, never a complaint about the parameters' form; what the
// running CLI does not have is UNIMPLEMENTED. All of it happens in a CLI that is thrown
// away, without a way out of the machine. An answer says exactly what the CLI's did.
func TestEveryMethod(t *testing.T) {
	t.Parallel()
	recorded := t.TempDir()
	r := harness.NewOwnFixture(t, harness.Echo, harness.HostConfig{
		Raw: true, Record: recorded,
		Env: map[string]string{"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9",
			"NO_PROXY": "127.0.0.1,localhost", "BROWSER": "/bin/false"},
		Change: func(c *app.Config) { c.Internal = true },
	})
	var methods []protoreflect.MethodDescriptor
	for _, service := range rpc.SurfaceServices(true) {
		for i := range service.Methods().Len() {
			methods = append(methods, service.Methods().Get(i))
		}
	}
	ids := make([]string, sweepers)
	for i := range ids {
		ids[i] = r.Session(r.Options()).ID()
	}
	conn := r.Conn()
	work := make(chan protoreflect.MethodDescriptor)
	results := make(chan swept, sweepers)
	var workers sync.WaitGroup
	for i := range sweepers {
		workers.Go(func() {
			for m := range work {
				for _, f := range []filler{{}, {whole: true}} {
					results <- sweep(r, conn.Invoke, m, f, &ids[i])
				}
			}
		})
	}
	go func() {
		for _, m := range methods {
			work <- m
		}
		close(work)
		workers.Wait()
		close(results)
	}()
	counts, extra := map[string]int{}, []string{}
	var answered []swept
	for one := range results {
		if one.outcome == "OK" {
			answered = append(answered, one)
		}
		counts[one.outcome]++
		if one.problem != "" {
			t.Errorf("%s: %s", one.method, one.problem)
		}
		if one.extra != "" {
			extra = append(extra, one.method+" "+one.extra)
		}
	}
	slices.Sort(extra)
	t.Logf("CLI %s: %d methods: %v; with members in json_extra: %d %q", r.Host.CLI, len(methods), counts, len(extra),
		extra)
	check(t, counts["OK"] > len(methods)/2, "only %d calls of %d methods succeeded", counts["OK"], len(methods))
	if err := r.Host.Close(); err != nil { // then all is recorded
		t.Errorf("end of the host: %v", err)
	}
	compareExactly(t, recorded, answered)
	replayed(t, recorded)
}

// replayed: the traffic of the connections goes to wire bytes and back unchanged. Values that only the catch-all holds
// are no failures: the parameters are made of nothing, and the order in which they come is never the same.
func replayed(t *testing.T, recorded string) {
	t.Helper()
	report, err := corpus.Replay(recorded)
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range report.Failures {
		t.Errorf("does not survive: %s", failure)
	}
	for place, n := range report.Drift {
		t.Logf("not typed: %d × %s", n, place)
	}
}

// answeredByBridge are the methods whose answers are the bridge's own, though the CLI may
// have been asked too: what ends a session, what is a union of several callers' wishes, and
// answers, which the first has given.
var answeredByBridge = []string{"session.destroy", "session.detach", "session.delete", "session.tools.set",
	"session.eventLog.registerInterest", "session.eventLog.releaseInterest",
	"session.tools.handlePendingToolCall", "session.permissions.handlePendingPermissionRequest",
	"session.ui.handlePendingElicitation",
	"session.ui.handlePendingSampling", "session.ui.handlePendingSessionLimitsExhausted",
	"session.commands.handlePendingCommand",
	"session.commands.respondToQueuedCommand", "session.mcp.oauth.handlePendingRequest",
	"session.mcp.headers.handlePendingHeadersRefreshRequest"}

// compareExactly compares the answers that callers got, as JSON, with the CLI's answers: one of them must be the same
// value.
func compareExactly(t *testing.T, recorded string, answered []swept) {
	t.Helper()
	results, err := corpus.Results(recorded)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, one := range answered {
		if slices.Contains(answeredByBridge, one.method) {
			continue
		}
		compared++
		if !slices.ContainsFunc(results[one.method], func(result json.RawMessage) bool {
			text, err := reference.Canonical(result)
			return err == nil && text == one.answer
		}) {
			t.Errorf("%s: a caller was answered %.500s; the CLI said %.500s", one.method, one.answer,
				results[one.method])
		}
	}
	t.Logf("%d answers are what the CLI said", compared)
	check(t, compared > 100, "only %d answers compared", compared)
}

// swept is what became of a method. The answer is canonical JSON.
type swept struct{ method, outcome, problem, extra, answer string }

type invoke = func(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error

// sweep calls one method. It may damage its session: the next method gets another if that is gone.
func sweep(r *harness.Fixture, call invoke, m protoreflect.MethodDescriptor, f filler, id *string) (one swept) {
	rules := rpc.MethodRules(m)
	one.method = rules.GetMethod()
	if untouched[one.method] != "" {
		one.outcome = "untouched"
		return one
	}
	ctx, cancel := context.WithTimeout(r.Ctx, sweepDeadline)
	defer cancel()
	request, reply := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	f.fill(request, 0)
	if fd := m.Input().Fields().ByName("session_id"); fd != nil {
		request.Set(fd, protoreflect.ValueOfString(*id))
	}
	err := call(exactly(ctx), fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name()), request, reply)
	if err == nil {
		one.outcome = "OK"
		if fd := m.Output().Fields().ByName("json_extra"); fd != nil {
			one.extra = reply.Get(fd).String()
		}
		if one.answer, err = canonical(reply); err != nil {
			one.problem = fmt.Sprintf("its answer has no JSON: %v", err)
		}
	} else {
		one.outcome, one.problem = judge(r, rules, err)
	}
	if slices.Contains([]string{"session.destroy", "session.detach", "session.delete", "sessions.bulkDelete"},
		one.method) {
		c, err := r.Client.CreateSession(r.Ctx, r.Options())
		if err != nil {
			one.problem = fmt.Sprintf("a new session after it: %v", err)
			return one
		}
		r.Own(c.ID())
		*id = c.ID()
	}
	return one
}

// canonical is the JSON that a message stands for, in the form in which values are compared.
func canonical(m proto.Message) (string, error) {
	table, err := translate.NewSet().Table(m.ProtoReflect().Descriptor())
	if err != nil {
		return "", err
	}
	wire, err := proto.Marshal(m)
	if err != nil {
		return "", err
	}
	text, err := table.AppendJSON(nil, wire, translate.JSONOptions{})
	if err != nil {
		return "", err
	}
	return reference.Canonical(text)
}

// judge tells a refusal from a complaint.
func judge(r *harness.Fixture, rules *jsonv1.MethodRules, err error) (outcome, problem string) {
	st := status.Convert(err)
	var rpc *bridgev1.JsonRpcError
	for _, d := range st.Details() {
		if d, ok := d.(*bridgev1.JsonRpcError); ok {
			rpc = d
		}
	}
	reason := bridgev1.ErrorReason_ERROR_REASON_UNSPECIFIED
	if e, ok := errors.AsType[*copilot.Error](copilot.FromError(err)); ok {
		reason = e.Reason
	}
	outcome = strings.TrimPrefix(reason.String(), "ERROR_REASON_")
	has := (rules.GetSince() == "" || !r.Before(rules.GetSince())) &&
		(rules.GetLast() == "" || !newer(r, rules.GetLast()))
	switch {
	case st.Code() == codes.DeadlineExceeded:
		return "waits", ""
	case rpc == nil:
		return outcome, fmt.Sprintf("the error has no JSON-RPC error in it: %v", err)
	case reason == bridgev1.ErrorReason_ERROR_REASON_METHOD_UNKNOWN && !has:
		return "unknown to this CLI", ""
	case reason == bridgev1.ErrorReason_ERROR_REASON_METHOD_UNKNOWN && slices.Contains(unhandled, rules.GetMethod()):
		return outcome, ""
	case reason == bridgev1.ErrorReason_ERROR_REASON_METHOD_UNKNOWN:
		return outcome, "the CLI does not have it"
	case lacks(r, rules.GetMethod(), rpc.GetMessage()):
		return "field unknown to this CLI", ""
	case complaint.MatchString(rpc.GetMessage()):
		return outcome, "complaint: " + rpc.GetMessage()
	case reason == bridgev1.ErrorReason_ERROR_REASON_INTERNAL ||
		reason == bridgev1.ErrorReason_ERROR_REASON_CLI_PROTOCOL_ERROR ||
		reason == bridgev1.ErrorReason_ERROR_REASON_RUNTIME_LOST:
		return outcome, err.Error()
	}
	return outcome, ""
}

var unknownField = regexp.MustCompile("unknown field `([^`]+)`")

// lacks reports a complaint about a parameter that the schemas of the CLI that runs do not
// have: another supported version has it.
func lacks(r *harness.Fixture, method, complaint string) bool {
	r.T.Helper()
	field := unknownField.FindStringSubmatch(complaint)
	if field == nil {
		return false
	}
	cli := readSurface(r.T, schemaDir(r.T, r.Host.CLI))
	i := slices.IndexFunc(cli.methods, func(m rawMethod) bool { return m.name == method })
	return i >= 0 && !cli.declares(cli.methods[i].params, field[1], maxFill)
}

// declares reports whether a schema has a member of that name, at any depth.
func (s *surface) declares(schema any, member string, depth int) bool {
	if node, ok := schema.([]any); ok {
		return slices.ContainsFunc(node, func(n any) bool { return s.declares(n, member, depth) })
	}
	node := object(schema)
	if node == nil || depth < 0 {
		return false
	}
	if node["$ref"] != nil {
		return s.declares(map[string]any(s.resolve(node)), member, depth-1)
	}
	if _, ok := object(node["properties"])[member]; ok {
		return true
	}
	for _, child := range object(node["properties"]) {
		if s.declares(child, member, depth-1) {
			return true
		}
	}
	return s.declares(node["items"], member, depth-1) || s.declares(node["anyOf"], member, depth-1) ||
		s.declares(node["additionalProperties"], member, depth-1)
}

// newer tells whether the CLI is newer than a version.
func newer(r *harness.Fixture, version string) bool {
	return !r.Before(version) && r.Host.CLI != version
}
