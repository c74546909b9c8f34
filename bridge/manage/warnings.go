package manage

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/bridge/broadcast"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// MaxWarnings is how many records Warnings has, and how many wait for a reader at most.
const MaxWarnings = 1000

const (
	maxMessage    = 4 << 10
	maxAttributes = 32
	maxAttribute  = 1 << 10
)

// Warnings has the last records of the server's log from level WARN, for callers to read. Its handlers wrap the handler
// of the log. Logging never waits for a reader. It is safe for concurrent use.
type Warnings struct {
	redact func(string) string
	hub    *broadcast.Hub[*bridgev1.ServerLogRecord]

	mu      sync.Mutex                  // the hub's is taken while it is held
	records []*bridgev1.ServerLogRecord // at most MaxWarnings; immutable, shared with the readers
	last    int64                       // number of the last record
}

// NewWarnings returns Warnings without records. redact removes credentials from text.
func NewWarnings(redact func(string) string) *Warnings {
	return &Warnings{redact: redact, hub: broadcast.New[*bridgev1.ServerLogRecord](MaxWarnings, broadcast.DropOldest)}
}

// subscribe returns the records so far, oldest first, and a subscription to all later ones, which the caller must
// close. The caller must not change the records.
func (r *Warnings) subscribe() ([]*bridgev1.ServerLogRecord, *broadcast.Subscription[*bridgev1.ServerLogRecord]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records), r.hub.Subscribe(func(*bridgev1.ServerLogRecord) bool { return true })
}

// add adds a record and numbers it.
func (r *Warnings) add(record *bridgev1.ServerLogRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	record.Number = r.last
	if len(r.records) == MaxWarnings {
		r.records = append(r.records[:0], r.records[1:]...)
	}
	r.records = append(r.records, record)
	r.hub.Publish(record)
}

// Handler returns a handler that passes records to next, and those from level WARN also to r.
func (r *Warnings) Handler(next slog.Handler) slog.Handler {
	return &warningsHandler{ring: r, next: next}
}

// warningsHandler is a handler of a logger. It is immutable.
type warningsHandler struct {
	ring   *Warnings
	next   slog.Handler
	prefix string // of the names of attributes
	attrs  []slog.Attr
}

// Enabled implements slog.Handler.
func (h *warningsHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *warningsHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		h.ring.add(h.convert(r))
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *warningsHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.next, c.attrs = h.next.WithAttrs(attrs), slices.Clip(h.attrs)
	for _, a := range attrs {
		a.Key = h.prefix + a.Key
		c.attrs = append(c.attrs, a)
	}
	return &c
}

// WithGroup implements slog.Handler.
func (h *warningsHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.next, c.prefix = h.next.WithGroup(name), h.prefix+name+"."
	return &c
}

// convert returns a record as the API has it.
func (h *warningsHandler) convert(r slog.Record) *bridgev1.ServerLogRecord {
	out := &bridgev1.ServerLogRecord{
		Time: timestamppb.New(r.Time), Level: bridgev1.ServerLogLevel_SERVER_LOG_LEVEL_WARN,
		Message: cut(h.ring.redact(r.Message), maxMessage), Attributes: map[string]string{},
	}
	if r.Level >= slog.LevelError {
		out.Level = bridgev1.ServerLogLevel_SERVER_LOG_LEVEL_ERROR
	}
	for _, a := range h.attrs {
		h.put(out.GetAttributes(), a.Key, a.Value)
	}
	r.Attrs(func(a slog.Attr) bool {
		h.put(out.GetAttributes(), h.prefix+a.Key, a.Value)
		return true
	})
	return out
}

// put adds an attribute, or the members of a group.
func (h *warningsHandler) put(to map[string]string, key string, v slog.Value) {
	v = v.Resolve()
	if v.Kind() == slog.KindGroup {
		for _, a := range v.Group() {
			name := key + "." + a.Key
			switch {
			case a.Key == "":
				name = key
			case key == "":
				name = a.Key
			}
			h.put(to, name, a.Value)
		}
		return
	}
	if key == "" || len(to) == maxAttributes {
		return
	}
	// The name belongs to the text that is searched: it may say that the value is a secret.
	text := h.ring.redact(key + "=" + v.String())
	name, value, found := strings.Cut(text, "=")
	if !found {
		name, value = key, text
	}
	to[cut(name, maxAttribute)] = cut(value, maxAttribute)
}

// cut returns valid UTF-8 of at most about size bytes.
func cut(s string, size int) string {
	if len(s) > size {
		s = s[:size] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}
