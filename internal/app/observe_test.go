package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// adminToken is the admin token of these tests.
const adminToken = "the-admin-token-of-the-tests"

// get reads a page of the admin listener.
func (r *running) get(t *testing.T, path string) (code int, text string) {
	t.Helper()
	return r.getAs(t, path, "")
}

// getAs reads a page of the admin listener in a format.
func (r *running) getAs(t *testing.T, path, accept string) (code int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Admin().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Accept", accept)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// family is a family of figures on the page.
type family struct {
	kind   string
	labels []string
}

// sample is a line of the page.
var sample = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? `)

// families reads a page, but for what the Go runtime and the process tell of themselves.
func families(page string) map[string]family {
	found := map[string]family{}
	lines := bufio.NewScanner(strings.NewReader(page))
	for lines.Scan() {
		line := lines.Text()
		if words := strings.Fields(line); strings.HasPrefix(line, "# TYPE ") && !strings.HasPrefix(words[2], "go_") &&
			!strings.HasPrefix(words[2], "process_") {
			found[words[2]] = family{kind: words[3]}
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := m[1]
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if whole := strings.TrimSuffix(name, part); found[whole].kind == "histogram" {
				name = whole
			}
		}
		f, ok := found[name]
		if !ok {
			continue
		}
		for _, label := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(m[2], -1) {
			if label[1] != "le" && !slices.Contains(f.labels, label[1]) {
				f.labels = append(f.labels, label[1])
			}
		}
		slices.Sort(f.labels)
		found[name] = f
	}
	return found
}

// documented reads the table of docs/telemetry.md.
func documented(t *testing.T) map[string]family {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "telemetry.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]family{}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\| ([^|]*)\\|")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		f := family{kind: m[2]}
		for _, label := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(m[3], -1) {
			f.labels = append(f.labels, label[1])
		}
		slices.Sort(f.labels)
		found[m[1]] = f
	}
	return found
}

// observed is a server that is looked at in every way.
type observed struct {
	*tenants
	spans *spanBuffer
	audit string
}

// spanBuffer keeps spans, also after its end.
type spanBuffer struct {
	mu    sync.Mutex
	spans tracetest.SpanStubs
}

// ExportSpans implements sdktrace.SpanExporter.
func (b *spanBuffer) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spans = append(b.spans, tracetest.SpanStubsFromReadOnlySpans(spans)...)
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (*spanBuffer) Shutdown(context.Context) error { return nil }

func (b *spanBuffer) all() tracetest.SpanStubs {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.spans)
}

func startObserved(t *testing.T, change func(*Config), options ...Option) *observed {
	t.Helper()
	o := &observed{spans: &spanBuffer{}, audit: filepath.Join(t.TempDir(), "audit.log")}
	o.tenants = startTenants(t, func(c *Config) {
		c.AdminListen, c.AdminToken, c.AuditLog = "127.0.0.1:0", adminToken, o.audit
		if change != nil {
			change(c)
		}
	}, append(options, func(s *settings) { s.spans = o.spans })...)
	return o
}

// entries reads the audit log.
func (o *observed) entries(t *testing.T) (list []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(o.audit)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var e map[string]any
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		list = append(list, e)
	}
	return list
}

// deploying is a script whose prompts call a tool that has to be permitted, after a model call that fails.
var deploying = fakecli.Script{Prompts: []fakecli.Prompt{{Turns: []fakecli.Turn{
	{Events: []fakecli.Event{{Type: "model.call_failure", Ephemeral: true, Data: json.RawMessage(
		`{"model":"busy-model","statusCode":429,"durationMs":5,"source":"top_level","errorMessage":"PLANTED-error"}`)}},
		Tools: []fakecli.Tool{{Name: "deploy", Arguments: json.RawMessage(`{"key":"PLANTED-argument"}`)}}},
	{Text: "Done."},
}}}}

// attachedFrame receives the first frame of a stream, behind those that say why the caller waits.
func attachedFrame(
	stream grpc.BidiStreamingClient[bridgev1.AttachRequest, bridgev1.AttachResponse],
) (f *bridgev1.AttachResponse, err error) {
	for f, err = stream.Recv(); err == nil && f.GetProgress() != nil; f, err = stream.Recv() {
	}
	return f, err
}

// deploy has a session take a turn in which a participant permits and answers a tool call.
func deploy(ctx context.Context, t *testing.T, ts *tenants, as, id, prompt string) {
	t.Helper()
	conn := ts.as(as)
	stream, err := bridgev1.NewCallbackServiceClient(conn).Attach(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(r *bridgev1.AttachRequest) {
		if err := stream.Send(r); err != nil {
			t.Error(err)
		}
	}
	send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
		Session:  &bridgev1.AttachStart_Create{Create: &bridgev1.CreateSessionRequest{SessionId: id}},
		Tools:    []*cliv1.ToolDefinition{{Name: "deploy", Description: "Deploys"}},
		Handlers: &bridgev1.Handlers{Permission: true},
	}}})
	if _, err := attachedFrame(stream); err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			cb := r.GetStream().GetCallbackRequested().GetCallback()
			answer := &bridgev1.CallbackAnswer{CallbackId: cb.GetCallbackId()}
			switch {
			case cb.GetPermission() != nil:
				answer.Answer = &bridgev1.Answer{Answer: &bridgev1.Answer_Approve{Approve: &bridgev1.Approve{}}}
			case cb.GetToolCall() != nil:
				answer.Answer = &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: "PLANTED-result"}}}}
			default:
				continue
			}
			send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{Answer: answer}})
		}
	}()
	out, err := bridgev1.NewSessionServiceClient(conn).SendAndWait(ctx,
		&bridgev1.SendAndWaitRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: prompt}})
	if err != nil || out.GetOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Fatalf("the turn: %v, %v", out, err)
	}
	send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Leave{Leave: &bridgev1.AttachLeave{}}})
	<-answered
}

func (ts *tenants) plays(tenant string, script fakecli.Script) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.clis[tenant] = fakecli.New(fakecli.Options{Script: script})
}

// The table of docs/telemetry.md is what the page has: names, kinds, labels.
func TestFiguresAreAsDocumented(t *testing.T) {
	t.Parallel()
	o := startObserved(t, func(c *Config) {
		c.Policy = writePolicy(t, tenantsPolicy+"    limits: {sessions: 1}\n", "operator", "acme-owner",
			"acme-participant", "acme-observer", "rival", "thief")
		c.MetricsByTenant = []string{"host"}
	})
	o.plays("", deploying)
	deploy(t.Context(), t, o.tenants, "operator", "s", "go")
	if _, err := bridgev1.NewSessionServiceClient(o.as("operator")).CreateSession(t.Context(),
		&bridgev1.CreateSessionRequest{}); err == nil {
		t.Fatal("a second session is no session too much")
	}
	stream, err := bridgev1.NewEventServiceClient(o.as("operator")).Subscribe(t.Context(),
		&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s"}}})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, page := o.get(t, "/metrics")
	for _, line := range []string{
		`copilot_build_info{cli_version="` + fakecli.DefaultVersion + `",go_version="` + runtime.Version() + `",revision="",version="dev"} 1`,
		`copilot_turns_total{status="completed"} 1`, `copilot_sessions{state="loaded"} 1`,
		`copilot_refused_total{limit="sessions"} 1`,
		`copilot_callbacks_total{kind="permission",outcome="answered"} 1`,
		`copilot_callbacks_total{kind="tool_call",outcome="answered"} 1`,
		`copilot_streams{method="copilot.bridge.v1.EventService/Subscribe"} 1`, `copilot_runtimes{state="ready"} 1`,
		`copilot_callback_duration_seconds_count{kind="tool_call"} 1`,
		`copilot_runtime_start_duration_seconds_count{outcome="started"} 1`,
		`gen_ai_client_operation_duration_seconds_count{error_type="429",gen_ai_operation_name="chat",gen_ai_provider_name="github",gen_ai_request_model="busy-model"} 1`,
		`gen_ai_client_token_usage_count{gen_ai_operation_name="chat",gen_ai_provider_name="github",gen_ai_request_model="other",gen_ai_token_type="input"} 2`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the page has no line %q", line)
		}
	}
	o.cli("").Close()
	deadline := time.Now().Add(testTimeout)
	for !strings.Contains(page, "copilot_runtime_ends_total") && time.Now().Before(deadline) {
		_, page = o.get(t, "/metrics")
	}
	checkMonitoring(t, page)
	got, want := families(page), documented(t)
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is not documented: %+v", name, got[name])
		}
	}
	for name, w := range want {
		g, ok := got[name]
		if !ok {
			t.Errorf("%s is documented, but not on the page", name)
		} else if g.kind != w.kind || !slices.Equal(g.labels, w.labels) {
			t.Errorf("%s is %+v, documented as %+v", name, g, w)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

// The trace of a caller goes through its call and the turn into the callbacks, on to the CLI and out to the answering
// participant.
func TestTraceGoesThrough(t *testing.T) {
	t.Parallel()
	o := startObserved(t, nil)
	o.plays("", deploying)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-00f067aa0ba902b7-01",
		"tracestate", "vendor=value")
	deploy(ctx, t, o.tenants, "operator", "s", "go")
	o.stop()
	o.end(t)
	spans := map[string]tracetest.SpanStub{}
	for _, s := range o.spans.all() {
		name := s.Name
		for _, a := range s.Attributes {
			if a.Key == "copilot.callback.kind" {
				name += " " + a.Value.AsString()
			}
			if text := a.Value.String(); strings.Contains(text, "PLANTED") {
				t.Errorf("%s has %s: %s", name, a.Key, text)
			}
		}
		if s.SpanContext.TraceID().String() != trace {
			t.Errorf("%s is in trace %s", name, s.SpanContext.TraceID())
		}
		spans[name] = s
	}
	for child, parent := range map[string]string{
		"invoke_agent":                "copilot.bridge.v1.SessionService/SendAndWait",
		"chat":                        "invoke_agent",
		"chat busy-model":             "invoke_agent",
		"execute_tool deploy":         "invoke_agent",
		"copilot.callback tool_call":  "execute_tool deploy",
		"copilot.callback permission": "execute_tool deploy",
	} {
		c, ok := spans[child]
		if p := spans[parent]; !ok || c.Parent.SpanID() != p.SpanContext.SpanID() {
			t.Errorf("the parent of %q (%v) is not %q", child, ok, parent)
		}
	}
	tool, call := spans["execute_tool deploy"], spans["copilot.callback tool_call"]
	if tool.StartTime.After(call.StartTime) || tool.EndTime.Before(call.EndTime) {
		t.Errorf("the tool ran from %v to %v, its call from %v to %v", tool.StartTime, tool.EndTime, call.StartTime, call.EndTime)
	}
	turn := spans["invoke_agent"].SpanContext
	sent := "00-" + trace + "-" + turn.SpanID().String() + "-01"
	if log := logOf(o.cli("")); !strings.Contains(log, sent) || !strings.Contains(log, "vendor=value") {
		t.Errorf("the CLI was not sent %s:\n%s", sent, log)
	}
}

// Metrics name the tenants of the setting only; the rest are other. Without the setting there are no metrics of tenants.
func TestMetricsByTenant(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ named, want []string }{
		"none": {nil, nil},
		"one": {[]string{"acme", "nobody"}, []string{
			`copilot_tenant_sessions{tenant="acme"} 1`, `copilot_tenant_sessions{tenant="other"} 2`,
			`copilot_tenant_turns_total{status="completed",tenant="acme"} 1`,
			`copilot_tenant_turns_total{status="completed",tenant="other"} 2`,
			`copilot_tenant_tokens_total{tenant="acme",type="input"} 2`, `copilot_tenant_tokens_total{tenant="acme",type="output"} 2`,
			`copilot_tenant_tokens_total{tenant="other",type="input"} 4`, `copilot_tenant_tokens_total{tenant="other",type="output"} 4`,
			`copilot_tenant_cost_total{tenant="acme"} 3`, `copilot_tenant_cost_total{tenant="other"} 6`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := startObserved(t, func(c *Config) { c.MetricsByTenant = tc.named })
			for as, tenant := range map[string]string{"operator": "", "acme-owner": "acme", "rival": "rival"} {
				o.plays(tenant, deploying)
				deploy(t.Context(), t, o.tenants, as, "s", "go")
			}
			_, page := o.get(t, "/metrics")
			var got []string
			for line := range strings.Lines(page) {
				if strings.HasPrefix(line, "copilot_tenant_") {
					got = append(got, strings.TrimSuffix(line, "\n"))
				}
			}
			slices.Sort(got)
			if slices.Sort(tc.want); !slices.Equal(got, tc.want) {
				t.Errorf("the metrics of tenants are %s, want %s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// exemplar is an example of a bucket: its metric, and its labels, which are the ids of a span.
var exemplar = regexp.MustCompile(`(?m)^([a-z_]+)_bucket\{.*\} \d+ # \{(.*)\} `)

// exemplars returns the metrics with examples on a page, with the ids of their spans.
func exemplars(page string) map[[2]string]trace.TraceID {
	found := map[[2]string]trace.TraceID{}
	for _, m := range exemplar.FindAllStringSubmatch(page, -1) {
		ids := map[string]string{}
		for _, label := range regexp.MustCompile(`([a-z_]+)="([0-9a-f]+)"`).FindAllStringSubmatch(m[2], -1) {
			ids[label[1]] = label[2]
		}
		found[[2]string{m[1], ids["span_id"]}], _ = trace.TraceIDFromHex(ids["trace_id"])
	}
	return found
}

// The histograms of durations have examples, by which a slow turn leads to its trace, for a scraper that takes
// OpenMetrics. Other scrapers get the plain text.
func TestExemplars(t *testing.T) {
	t.Parallel()
	o := startObserved(t, nil)
	o.plays("", deploying)
	deploy(t.Context(), t, o.tenants, "operator", "s", "go")
	page := ""
	deadline := time.Now().Add(testTimeout)
	for !strings.Contains(page, `SendAndWait",rpc_response_status_code="OK"`) && time.Now().Before(deadline) { // counted after its reply
		_, page = o.getAs(t, "/metrics", "application/openmetrics-text; version=1.0.0")
	}
	_, plain := o.get(t, "/metrics")
	o.stop()
	o.end(t)
	spans := map[string]tracetest.SpanStub{}
	for _, s := range o.spans.all() {
		spans[s.SpanContext.SpanID().String()] = s
	}
	have := map[string]bool{}
	for of, traceID := range exemplars(page) {
		s, ok := spans[of[1]]
		if !ok || s.SpanContext.TraceID() != traceID {
			t.Errorf("an example of %s names no span: %s %s", of[0], traceID, of[1])
		}
		name, _, _ := strings.Cut(s.Name, " ")
		have[of[0]+" "+name] = true
	}
	for _, want := range []string{
		"copilot_turn_duration_seconds invoke_agent", "copilot_callback_duration_seconds copilot.callback",
		"gen_ai_client_operation_duration_seconds chat", "gen_ai_client_token_usage chat",
		"rpc_server_call_duration_seconds copilot.bridge.v1.SessionService/SendAndWait",
	} {
		if !have[want] {
			t.Errorf("there is no example %q: %v\n%s", want, have, page)
		}
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(plain))
	if err != nil || parsed["copilot_turn_duration_seconds"] == nil || exemplar.MatchString(plain) {
		t.Errorf("the text has %d metrics: %v", len(parsed), err)
	}
	if !strings.HasSuffix(page, "# EOF\n") {
		t.Error("OpenMetrics has no end")
	}
}

// logOf is everything that a fake CLI was sent and has said.
func logOf(cli *fakecli.CLI) string {
	text, err := json.Marshal(cli.Log())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Frames of an Attach stream belong to separate traces, which link the stream's: a stream lasts for a day, and its
// turns are not one piece of work. A prompt that names a trace belongs to that trace.
func TestTracesOfAStream(t *testing.T) {
	t.Parallel()
	o := startObserved(t, nil)
	const stream, named = "4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+stream+"-00f067aa0ba902b7-01")
	attached, err := bridgev1.NewCallbackServiceClient(o.as("operator")).Attach(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(r *bridgev1.AttachRequest) {
		t.Helper()
		if err := attached.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_Create{Create: &bridgev1.CreateSessionRequest{SessionId: "s"}},
	}}})
	for _, parent := range []string{"", "00-" + named + "-b7ad6b7169203331-01"} {
		send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Command{Command: &bridgev1.AttachCommand{
			Command: &bridgev1.AttachCommand_Send{Send: &bridgev1.Prompt{Text: "hi", Traceparent: parent}},
		}}})
		for over := false; !over; {
			r, err := attached.Recv()
			if err != nil {
				t.Fatal(err)
			}
			over = r.GetStream().GetTurnEnded() != nil
		}
	}
	send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Leave{Leave: &bridgev1.AttachLeave{}}})
	o.stop()
	o.end(t)
	var turns []tracetest.SpanStub
	for _, s := range o.spans.all() {
		if s.Name == "invoke_agent" {
			turns = append(turns, s)
		}
	}
	if len(turns) != 2 {
		t.Fatalf("%d turns have spans", len(turns))
	}
	if id := turns[0].SpanContext.TraceID().String(); id == stream || turns[0].Parent.IsValid() {
		t.Errorf("the first turn is in trace %s", id)
	}
	if id := turns[1].SpanContext.TraceID().String(); id != named {
		t.Errorf("the second turn is in trace %s", id)
	}
	for i, turn := range turns {
		if len(turn.Links) != 1 || turn.Links[0].SpanContext.TraceID().String() != stream {
			t.Errorf("turn %d links %v", i+1, turn.Links)
		}
	}
}
