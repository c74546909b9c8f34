package tenant

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// traceID is the trace of the test's caller, callerSpan its span.
const (
	traceID    = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan = "00f067aa0ba902b7"
)

// receiver takes spans by OTLP over HTTP.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans map[string]*tracev1.Span // by name and the attribute that tells kinds apart
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{spans: map[string]*tracev1.Span{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if q.URL.Path != "/v1/traces" || err != nil {
			return // figures
		}
		var export collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &export); err != nil {
			t.Errorf("what is exported: %v", err)
		}
		r.take(&export)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) take(export *collector.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range export.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				name := span.GetName()
				for _, a := range span.GetAttributes() {
					if a.GetKey() == "copilot.callback.kind" {
						name += " " + a.GetValue().GetStringValue()
					}
				}
				if hex.EncodeToString(span.GetTraceId()) == traceID {
					r.spans[name] = span
				}
			}
		}
	}
}

// attribute is the value of a span's attribute.
func attribute(span *tracev1.Span, key string) string {
	for _, a := range span.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// tracedTurn is a turn with a permission and a tool call, by a caller that traces.
func tracedTurn(st *harness.Scripted) (id string, got copilot.Call) {
	st.T.Helper()
	s := st.Create(copilot.SessionOptions{
		OnPermission: copilot.ApproveAll,
		Tools: []copilot.Tool{copilot.NewTool("trace", "Traces", func(ctx context.Context, _ struct{}) (string, error) {
			got, _ = copilot.CallFrom(ctx)
			return "SPOKEN result", nil
		})},
	})
	ctx := st.Ctx
	st.Ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", "00-"+traceID+"-"+callerSpan+"-01")
	st.Say(s, "trace SPOKEN prompt")
	st.Ctx = ctx
	return s.ID(), got
}

// adminToken is the admin token of these tests.
const adminToken = "the-admin-token-of-the-tests"

func page(st *harness.Scripted, path string) string {
	st.T.Helper()
	req, err := http.NewRequestWithContext(st.Ctx, http.MethodGet, "http://"+st.Host.Admin+path, nil)
	if err != nil {
		st.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		st.T.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		st.T.Fatal(err)
	}
	return string(body)
}

// A caller's trace goes through its call and its turn, through the CLI, and out with the tool
// call; the page of figures has the turn, the audit log who allowed the tool.
func TestTelemetryOfATurn(t *testing.T) {
	t.Parallel()
	for name, cli := range map[string]bool{"the CLI traces": true, "the CLI does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t)
			dir := t.TempDir()
			trail, file := filepath.Join(dir, "audit.log"), filepath.Join(dir, "spans.jsonl")
			config := harness.HostConfig{Change: func(c *app.Config) {
				c.AdminListen, c.AdminToken = "127.0.0.1:0", adminToken
				c.AuditLog, c.OTLPEndpoint = trail, r.URL
			}}
			if cli {
				config.Env = map[string]string{
					"COPILOT_OTEL_ENABLED": "true", "COPILOT_OTEL_EXPORTER_TYPE": "file",
					"COPILOT_OTEL_FILE_EXPORTER_PATH": file,
				}
			}
			st := harness.NewOwnScripted(t, config, harness.OnUser("trace", harness.Call("trace", nil)),
				harness.OnResult("trace", harness.Say("traced")))
			id, got := tracedTurn(st)
			provider := "openai"
			if st.Before("1.0.102") { // CLI 1.0.81 does not tell it
				provider = "other"
			}
			for _, line := range []string{`copilot_turns_total{status="completed"} 1`,
				`copilot_callbacks_total{kind="tool_call",outcome="answered"} 1`,
				`gen_ai_client_token_usage_count{gen_ai_operation_name="chat",gen_ai_provider_name="` + provider + `",gen_ai_request_model="` +
					offlinemodel.DefaultModel + `",gen_ai_token_type="output"} 2`} {
				// The turn may end before the answer's call has returned. st.ctx ends the wait.
				for !strings.Contains(page(st, "/metrics"), line) {
				}
			}
			if ready := page(st, "/readyz"); ready != "ready\n" {
				t.Errorf("it is %q", ready)
			}
			if err := st.Host.Close(); err != nil { // which sends what is left
				t.Fatal(err)
			}
			r.check(t, id, got, file, cli)
			checkAudit(t, trail, id)
		})
	}
}

// check checks how spans hang together.
func (r *receiver) check(t *testing.T, id string, got copilot.Call, file string, cli bool) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	rpc, turn, asked := r.spans["copilot.bridge.v1.SessionService/SendAndWait"], r.spans["invoke_agent"], r.spans["copilot.callback tool_call"]
	if rpc == nil || turn == nil || asked == nil || r.spans["copilot.callback permission"] == nil {
		t.Fatalf("spans are missing: there are %d", len(r.spans))
	}
	if parent := hex.EncodeToString(rpc.GetParentSpanId()); parent != callerSpan {
		t.Errorf("the call's parent is %s", parent)
	}
	if !bytes.Equal(turn.GetParentSpanId(), rpc.GetSpanId()) {
		t.Error("the turn's parent is not the call")
	}
	for name, span := range r.spans {
		if attribute(span, "session.id") != id {
			t.Errorf("%s is of session %q", name, attribute(span, "session.id"))
		}
		if strings.Contains(span.String(), "SPOKEN") {
			t.Errorf("%s says what was said: %v", name, span)
		}
	}
	if want := "00-" + traceID + "-" + hex.EncodeToString(asked.GetSpanId()) + "-01"; got.Traceparent != want {
		t.Errorf("the tool is called under %q, not %q", got.Traceparent, want)
	}
	chat, tool := r.spans["chat "+offlinemodel.DefaultModel], r.spans["execute_tool trace"]
	if (chat == nil || tool == nil) != cli {
		t.Errorf("the spans of model calls and tools are %v and %v", chat, tool)
	}
	if !cli {
		permission := r.spans["copilot.callback permission"]
		if tool.GetStartTimeUnixNano() > permission.GetStartTimeUnixNano() || tool.GetEndTimeUnixNano() < asked.GetEndTimeUnixNano() {
			t.Errorf("the tool's span is %v, its permission's %v, its call's %v", tool, permission, asked)
		}
		if !bytes.Equal(chat.GetParentSpanId(), turn.GetSpanId()) || chat.GetEndTimeUnixNano() <= chat.GetStartTimeUnixNano() {
			t.Errorf("the span of the model call is %v", chat)
		}
		if !bytes.Equal(asked.GetParentSpanId(), tool.GetSpanId()) || !bytes.Equal(permission.GetParentSpanId(), tool.GetSpanId()) {
			t.Error("the parent of the tool's permission and call is not the tool")
		}
		return
	}
	parents := cliSpans(t, file)
	for id := hex.EncodeToString(asked.GetParentSpanId()); ; id = parents[id] {
		if id == hex.EncodeToString(turn.GetSpanId()) {
			return
		}
		if id == "" {
			t.Fatalf("the CLI's spans do not lead from the tool call to the turn %x: %v", turn.GetSpanId(), parents)
		}
	}
}

// cliSpans are the parents of the spans that the CLI has written.
func cliSpans(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parents := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var span struct {
			SpanID            string
			ParentSpanID      string
			ParentSpanContext struct{ SpanID string }
		}
		if json.Unmarshal(lines.Bytes(), &span) == nil && span.SpanID != "" {
			parents[span.SpanID] = span.ParentSpanID + span.ParentSpanContext.SpanID
		}
	}
	return parents
}

// checkAudit checks that the log says who allowed the tool.
func checkAudit(t *testing.T, file, id string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"session.create": false, "permission approve-once": false, "tool_call answer": false}
	for line := range bytes.Lines(text) {
		var e struct {
			Msg, Kind, Decision, Caller, Tenant, Peer string
			SessionID                                 string `json:"session_id"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.SessionID != id || e.Tenant != "host" || e.Peer != "unix" {
			continue
		}
		if e.Msg == "callback.answer" {
			e.Msg = e.Kind + " " + e.Decision
		}
		want[e.Msg] = true
	}
	for what, there := range want {
		if !there {
			t.Errorf("the audit log lacks %q:\n%s", what, text)
		}
	}
	if bytes.Contains(text, []byte("SPOKEN")) {
		t.Errorf("the audit log says what was said:\n%s", text)
	}
}
