package observe

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Attributes of OpenTelemetry's conventions for generative AI.
const (
	attrOperation    = attribute.Key("gen_ai.operation.name")
	attrProvider     = attribute.Key("gen_ai.provider.name")
	attrConversation = attribute.Key("gen_ai.conversation.id")
	attrModel        = attribute.Key("gen_ai.request.model")
	attrFinish       = attribute.Key("gen_ai.response.finish_reasons")
	attrInput        = attribute.Key("gen_ai.usage.input_tokens")
	attrOutput       = attribute.Key("gen_ai.usage.output_tokens")
	attrCacheRead    = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	attrCacheWrite   = attribute.Key("gen_ai.usage.cache_creation.input_tokens")
	attrTokenType    = attribute.Key("gen_ai.token.type")
	attrAgent        = attribute.Key("gen_ai.agent.id")
	attrTool         = attribute.Key("gen_ai.tool.name")
	attrToolCall     = attribute.Key("gen_ai.tool.call.id")
	attrError        = attribute.Key("error.type")
)

// Values of gen_ai.operation.name, with which the names of spans begin.
const (
	opTurn  = "invoke_agent"
	opModel = "chat"
	opTool  = "execute_tool"
)

// provider is the gen_ai.provider.name of the agent and its models; providers are the names of users' own endpoints, by
// the CLI's names.
const provider = "github"

var providers = map[string]string{"openai": "openai", "anthropic": "anthropic", "azure": "azure.ai.openai"}

const (
	// maxModels and maxOwnModels bound the models in labels, separately because callers choose the names of models of
	// their own endpoints. Each model has up to 60 series.
	maxModels, maxOwnModels = 32, 16
	// maxName bounds the bytes of a name in a label or the name of a span, maxValue those of an attribute whose value a
	// model, a tool or a caller has chosen: batches that are too large for the collector lose the spans of all tenants.
	maxName, maxValue = 64, 256
	// other is the label of what has none of its own, otherError the error.type of an error without a known class.
	other, otherError = "other", "_OTHER"
)

// Boundaries of the histograms, as the conventions give them.
var (
	tokenBounds = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
	callBounds  = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
)

// models has the metrics of model calls.
type models struct {
	tokens                    metric.Int64Histogram
	duration                  metric.Float64Histogram
	names, own                bounded
	tokenLabels, failedLabels labels
}

func (m *models) init(meter metric.Meter) error {
	var errs [2]error
	m.names.limit, m.own.limit = maxModels, maxOwnModels
	m.tokens, errs[0] = meter.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"),
		metric.WithDescription("Tokens of model calls, by model and type."), metric.WithExplicitBucketBoundaries(tokenBounds...))
	m.duration, errs[1] = meter.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of model calls, by model and error."), metric.WithExplicitBucketBoundaries(callBounds...))
	return errors.Join(errs[:]...)
}

// bounded are the values of a label that came up first. It is safe for concurrent use.
type bounded struct {
	limit int
	mu    sync.Mutex
	known map[string]bool
}

// of returns a value, or other if the value is empty, too long or not one of the first.
func (b *bounded) of(value string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.known[value]:
		return value
	case value == "" || len(value) > maxName || len(b.known) >= b.limit:
		return other
	case b.known == nil:
		b.known = map[string]bool{}
	}
	b.known[value] = true
	return value
}

// Tokens are numbers of tokens that model calls used.
type Tokens struct{ Input, Output, CacheRead, CacheWrite int64 }

// Add adds other tokens.
func (t *Tokens) Add(o Tokens) {
	t.Input += o.Input
	t.Output += o.Output
	t.CacheRead += o.CacheRead
	t.CacheWrite += o.CacheWrite
}

// ModelCall is a request to a model that has ended.
type ModelCall struct {
	Model string
	// Own reports that the model belongs to an endpoint of the user, whose type is Endpoint.
	Own      bool
	Endpoint string
	// Agent is the sub-agent that made the call; empty for the session's own.
	Agent string
	Tokens
	Took time.Duration
	// Cost is the billing multiplier.
	Cost float64
	// Finish is the reason why the model stopped; empty if it is unknown.
	Finish string
	// Traced reports that the CLI exports a span of the call itself.
	Traced bool
	// Failed reports that the call failed, with Status as the HTTP status; 0 if there is none.
	Failed bool
	Status int
}

func (c *ModelCall) provider() string {
	if !c.Own {
		return provider
	}
	return cmp.Or(providers[c.Endpoint], other)
}

// failure returns the error.type of a span; empty for a call that succeeded.
func (c *ModelCall) failure() string {
	switch {
	case !c.Failed:
		return ""
	case c.Status >= 400 && c.Status < 600:
		return strconv.Itoa(c.Status)
	}
	return otherError
}

// statuses are the HTTP statuses of labels. Endpoints of users may reply any other, and a metric has 2,000 label sets, above
// which the SDK merges new ones.
var statuses = []int{400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529}

// failureLabel returns the error.type of a metric; empty for a call that succeeded.
func (c *ModelCall) failureLabel() string {
	if c.Failed && !slices.Contains(statuses, c.Status) {
		return otherError
	}
	return c.failure()
}

// ModelCalled records a call that ended at a time. turn is its turn, or nil; total is what the turn has used so far.
func (o *Observer) ModelCalled(turn *Span, session, tenant string, c *ModelCall, total Tokens, at time.Time) {
	ctx := o.modelSpan(turn, session, tenant, c, at)
	names := &o.models.names
	if c.Own {
		names = &o.models.own
	}
	base := [3]string{names.of(c.Model), c.provider()}
	if c.Took > 0 {
		key := base
		key[2] = c.failureLabel()
		by := o.models.failedLabels.of(key, func() attribute.Set { return modelLabels(key, attrError) })
		o.models.duration.Record(ctx, c.Took.Seconds(), by.record...)
	}
	if c.Failed {
		return
	}
	turn.use(total)
	o.tenantCall(tenant, c)
	for i, n := range [2]int64{c.Input, c.Output} {
		key := base
		key[2] = [2]string{"input", "output"}[i]
		by := o.models.tokenLabels.of(key, func() attribute.Set { return modelLabels(key, attrTokenType) })
		o.models.tokens.Record(ctx, n, by.record...)
	}
}

// modelLabels returns the labels of a model, a provider, and a value that may be empty.
func modelLabels(values [3]string, last attribute.Key) attribute.Set {
	set := []attribute.KeyValue{attrOperation.String(opModel), attrModel.String(values[0]), attrProvider.String(values[1])}
	if values[2] != "" {
		set = append(set, last.String(values[2]))
	}
	return attribute.NewSet(set...)
}

// modelSpan records the span of a model call, and returns a context with it, or with the turn's.
func (o *Observer) modelSpan(turn *Span, session, tenant string, c *ModelCall, at time.Time) context.Context {
	if !o.Traces() || c.Traced {
		return turn.context()
	}
	attrs := append(stepAttributes(opModel, session, tenant, c.Agent), attrProvider.String(c.provider()),
		attrModel.String(cut(c.Model)))
	ctx, span := o.tracer.Start(turn.context(), spanName(opModel, c.Model), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(at.Add(-c.Took)), trace.WithAttributes(attrs...))
	if c.Failed {
		span.SetAttributes(attrError.String(c.failure()))
		span.SetStatus(codes.Error, "")
	} else {
		span.SetAttributes(tokenAttributes(c.Tokens)...)
	}
	if c.Finish != "" {
		span.SetAttributes(attrFinish.StringSlice([]string{cut(c.Finish)}))
	}
	span.End(trace.WithTimestamp(at))
	return ctx
}

// Traces reports whether spans are recorded.
func (o *Observer) Traces() bool { return o.tracer != nil }

// Tool starts the span of a tool call. agent is the sub-agent that makes the call; empty for the session's own. The
// span is nil unless Traces.
func (o *Observer) Tool(turn *Span, session, tenant, agent, call, name string, at time.Time) *Span {
	if !o.Traces() {
		return nil
	}
	attrs := append(stepAttributes(opTool, session, tenant, agent), attrTool.String(cut(name)), attrToolCall.String(cut(call)))
	_, span := o.tracer.Start(turn.context(), spanName(opTool, name), trace.WithTimestamp(at), trace.WithAttributes(attrs...))
	return &Span{span: span, own: true}
}

// EndTool ends the span of a tool call. failure is the code of its error, if it failed.
func (s *Span) EndTool(failed bool, failure string, at time.Time) {
	if s == nil {
		return
	}
	if failed {
		s.span.SetAttributes(attrError.String(code(failure)))
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End(trace.WithTimestamp(at))
}

// stepAttributes are the attributes of every step of a turn.
func stepAttributes(op, session, tenant, agent string) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attrOperation.String(op), attrConversation.String(session), attribute.String(AttrSession, session),
		attribute.String(AttrTenant, tenant),
	}
	if agent != "" {
		attrs = append(attrs, attrAgent.String(cut(agent)))
	}
	return attrs
}

func tokenAttributes(t Tokens) []attribute.KeyValue {
	return []attribute.KeyValue{attrInput.Int64(t.Input), attrOutput.Int64(t.Output),
		attrCacheRead.Int64(t.CacheRead), attrCacheWrite.Int64(t.CacheWrite)}
}

// use sets what a turn has used.
func (s *Span) use(t Tokens) {
	if s.Own() {
		s.span.SetAttributes(tokenAttributes(t)...)
	}
}

// context returns a context with the span if it is recorded.
func (s *Span) context() context.Context {
	if !s.Own() {
		return context.Background()
	}
	return trace.ContextWithSpanContext(context.Background(), s.span.SpanContext())
}

// spanName returns the name of a span, with up to maxName bytes of the name of a model or tool.
func spanName(op, name string) string { return strings.TrimSpace(op + " " + head(name, maxName)) }

// cut returns the value of an attribute with up to maxValue bytes, which does not keep the rest in memory.
func cut(value string) string {
	if len(value) <= maxValue {
		return value
	}
	return strings.Clone(head(value, maxValue))
}

// head returns up to n bytes of a text. An exporter loses all spans of a batch if a text of one ends within a character.
func head(text string, n int) string { return strings.ToValidUTF8(text[:min(len(text), n)], "") }

// code returns an error's code, or otherError if it is not a word: participants write the codes of their tools.
func code(text string) string {
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && c != '_' {
			return otherError
		}
	}
	if text == "" || len(text) > maxName {
		return otherError
	}
	return text
}
