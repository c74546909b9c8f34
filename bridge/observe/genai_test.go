package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// attributes returns the attributes of a span as text.
func attributes(s *tracetest.SpanStub) map[attribute.Key]string {
	all := map[attribute.Key]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.String()
	}
	return all
}

// Model calls and tools are children of their turn with the times at which they ran, and the turn has the tokens of all
// calls.
func TestStepsOfATurn(t *testing.T) {
	t.Parallel()
	o, spans := tracing(t)
	at := time.Now()
	turn := o.Turn(context.Background(), "s", "acme", Remote{})
	call := ModelCall{Model: "m", Took: time.Second, Tokens: Tokens{10, 2, 3, 4}, Finish: "stop"}
	total := call.Tokens
	o.ModelCalled(turn, "s", "acme", &call, total, at)
	call.Agent, call.Own, call.Endpoint = "sub", true, "azure"
	total.Add(call.Tokens)
	o.ModelCalled(turn, "s", "acme", &call, total, at)
	o.ModelCalled(turn, "s", "acme", &ModelCall{Failed: true, Status: 503, Own: true, Endpoint: "home"}, total, at)
	o.Tool(turn, "s", "acme", "", "c1", "deploy", at).EndTool(false, "", at.Add(time.Minute))
	o.Tool(turn, "s", "acme", "", "c2", "deploy", at).EndTool(true, "denied", at)
	o.Tool(turn, "s", "acme", "", "c3", strings.Repeat("é", 40)+"é", at).EndTool(true, "No such file: /home/me", at)
	turn.EndTurn("TURN_STATUS_COMPLETED")
	got := spans.GetSpans()
	type want struct {
		name       string
		kind       trace.SpanKind
		took       time.Duration
		attributes map[attribute.Key]string
	}
	for i, w := range []want{
		{"chat m", trace.SpanKindClient, time.Second, map[attribute.Key]string{
			attrOperation: opModel, attrProvider: "github", attrModel: "m", attrConversation: "s", AttrSession: "s",
			AttrTenant: "acme", attrInput: "10", attrOutput: "2", attrCacheRead: "3", attrCacheWrite: "4", attrFinish: `["stop"]`}},
		{"chat m", trace.SpanKindClient, time.Second, map[attribute.Key]string{attrProvider: "azure.ai.openai", attrAgent: "sub"}},
		{"chat", trace.SpanKindClient, 0, map[attribute.Key]string{attrProvider: other, attrError: "503"}},
		{"execute_tool deploy", trace.SpanKindInternal, time.Minute, map[attribute.Key]string{
			attrOperation: opTool, attrTool: "deploy", attrToolCall: "c1", attrConversation: "s"}},
		{"execute_tool deploy", trace.SpanKindInternal, 0, map[attribute.Key]string{attrError: "denied"}},
		{"execute_tool " + strings.Repeat("é", maxName/2), trace.SpanKindInternal, 0, map[attribute.Key]string{attrError: otherError}},
		{"invoke_agent", trace.SpanKindClient, 0, map[attribute.Key]string{
			attrOperation: opTurn, attrProvider: "github", attrConversation: "s", attrInput: "20", attrOutput: "4", attrCacheRead: "6",
			attrCacheWrite: "8"}},
	} {
		s := &got[i]
		has := attributes(s)
		for key, value := range w.attributes {
			if has[key] != value {
				t.Errorf("%s has %s %q, want %q", s.Name, key, has[key], value)
			}
		}
		if s.Name != w.name || s.SpanKind != w.kind || w.took > 0 && s.EndTime.Sub(s.StartTime) != w.took {
			t.Errorf("span %d is %q, a %v, and took %v", i, s.Name, s.SpanKind, s.EndTime.Sub(s.StartTime))
		}
		if failed := w.attributes[attrError] != ""; (s.Status.Code.String() == "Error") != failed || !failed && has[attrError] != "" {
			t.Errorf("%s has the status %v", s.Name, s.Status)
		}
		if i < len(got)-1 && s.Parent.SpanID() != got[len(got)-1].SpanContext.SpanID() {
			t.Errorf("%s is no child of the turn", s.Name)
		}
	}
}

// Values that callers choose, by the names of their models and the replies of their endpoints, are cut between characters.
func TestValuesOfSpansAreBounded(t *testing.T) {
	t.Parallel()
	o, spans := tracing(t)
	long := "x" + strings.Repeat("é", 1<<20)
	o.ModelCalled(nil, "s", "", &ModelCall{Model: long, Agent: long, Finish: long}, Tokens{}, time.Now())
	o.Tool(nil, "s", "", long, long, long, time.Now()).EndTool(false, "", time.Now())
	want := long[:maxValue-1]
	for _, s := range spans.GetSpans() {
		has := attributes(&s)
		for _, key := range []attribute.Key{attrModel, attrAgent, attrFinish, attrTool, attrToolCall} {
			if got := strings.Trim(has[key], `[]"`); got != "" && got != want {
				t.Errorf("%s has %s of %d bytes", s.Name, key, len(got))
			}
		}
	}
}

// If the CLI exports the span of a model call, the bridge does not; its metrics stay.
func TestCallsTracedByTheCLI(t *testing.T) {
	t.Parallel()
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	o, err := New(Config{Tracers: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
		Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	o.ModelCalled(nil, "s", "", &ModelCall{Model: "m", Traced: true, Tokens: Tokens{Input: 5}}, Tokens{}, time.Now())
	if got := spans.GetSpans(); len(got) != 0 {
		t.Errorf("there are the spans %v", got)
	}
	if got := modelsIn(t, reader); !slices.Equal(got, []string{"m"}) {
		t.Errorf("the metrics have the models %v", got)
	}
}

// modelsIn returns the models in the labels of token usage.
func modelsIn(t *testing.T, reader sdkmetric.Reader) []string {
	t.Helper()
	return labelsIn[int64](t, reader, "gen_ai.client.token.usage", attrModel)
}

// labelsIn returns the values of a label of a histogram.
func labelsIn[N int64 | float64](t *testing.T, reader sdkmetric.Reader, metric string, key attribute.Key) (values []string) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name != metric {
			continue
		}
		for _, p := range m.Data.(metricdata.Histogram[N]).DataPoints {
			value, _ := p.Attributes.Value(key)
			values = append(values, value.AsString())
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// An endpoint of a user makes few series by the statuses of its replies.
func TestStatusesInLabelsAreBounded(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	o, err := New(Config{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	for status := range 1000 {
		c := &ModelCall{Model: "m", Own: true, Failed: true, Status: status, Took: time.Second}
		o.ModelCalled(nil, "s", "", c, Tokens{}, time.Now())
	}
	got := labelsIn[float64](t, reader, "gen_ai.client.operation.duration", attrError)
	if len(got) != len(statuses)+1 || !slices.Contains(got, "429") || !slices.Contains(got, otherError) {
		t.Errorf("%d statuses: %v", len(got), got)
	}
}

// Models of users' endpoints, whose names callers choose, do not take the labels of GitHub's, and neither have too many.
func TestModelsInLabelsAreBounded(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	o, err := New(Config{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	called := func(name string, own bool) {
		o.ModelCalled(nil, "s", "", &ModelCall{Model: name, Own: own}, Tokens{}, time.Now())
	}
	called(strings.Repeat("x", maxName+1), true)
	for i := range 100 {
		called(fmt.Sprint("own-", i), true)
	}
	for i := range 100 {
		called(fmt.Sprint("github-", i), false)
	}
	got := modelsIn(t, reader)
	if len(got) != maxModels+maxOwnModels+1 || !slices.Contains(got, "github-0") || !slices.Contains(got, "own-15") ||
		!slices.Contains(got, other) {
		t.Errorf("%d models: %v", len(got), got)
	}
}
