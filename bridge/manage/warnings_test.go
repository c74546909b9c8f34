package manage

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func hide(s string) string { return strings.ReplaceAll(s, "secret", "[redacted]") }

// logger returns a ring and a logger that also writes to out, from level ERROR.
func logger(out *bytes.Buffer) (*Warnings, *slog.Logger) {
	r := NewWarnings(hide)
	return r, slog.New(r.Handler(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelError})))
}

// Records from level WARN have their attributes as text, without secrets; the log itself has what its level permits.
func TestRecords(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r, log := logger(&out)
	log.Info("nothing")
	log.With("session_id", "s").WithGroup("http").With("status", 500).Warn("a secret failed",
		"error", errors.New("with a secret"), "", "unnamed",
		slog.Group("peer", "address", "unix", slog.Group("", "port", 1)))
	log.Error("worse", "long", strings.Repeat("ä", maxAttribute))
	records, w := r.subscribe()
	defer w.Close()
	if len(records) != 2 {
		t.Fatalf("the records are %v", records)
	}
	warn, worse := records[0], records[1]
	want := map[string]string{"session_id": "s", "http.status": "500", "http.error": "with a [redacted]",
		"http.peer.address": "unix", "http.peer.port": "1", "http.": "unnamed"}
	if warn.GetNumber() != 1 || warn.GetMessage() != "a [redacted] failed" || warn.GetTime().AsTime().IsZero() ||
		warn.GetLevel() != bridgev1.ServerLogLevel_SERVER_LOG_LEVEL_WARN || !maps.Equal(warn.GetAttributes(), want) {
		t.Errorf("the warning is %v", warn)
	}
	if worse.GetNumber() != 2 || worse.GetLevel() != bridgev1.ServerLogLevel_SERVER_LOG_LEVEL_ERROR ||
		len(worse.GetAttributes()["long"]) > maxAttribute+len("…�") {
		t.Errorf("the error is %v", worse)
	}
	if text := out.String(); strings.Contains(text, "failed") || !strings.Contains(text, "worse") {
		t.Errorf("the log has %s", text)
	}
}

// A ring has the last records, and a record at most a number of attributes.
func TestBounds(t *testing.T) {
	t.Parallel()
	r, log := logger(new(bytes.Buffer))
	for i := range MaxWarnings + 10 {
		log.Warn(fmt.Sprint(i))
	}
	attrs := make([]any, 0, 4*maxAttributes)
	for i := range 2 * maxAttributes {
		attrs = append(attrs, fmt.Sprint("k", i), strings.Repeat("x", maxMessage))
	}
	log.Warn(strings.Repeat("y", 2*maxMessage), attrs...)
	records, w := r.subscribe()
	defer w.Close()
	last := records[len(records)-1]
	if len(records) != MaxWarnings || records[0].GetNumber() != 12 || records[0].GetMessage() != "11" {
		t.Errorf("%d records from %v", len(records), records[0])
	}
	if len(last.GetAttributes()) != maxAttributes || len(last.GetMessage()) > maxMessage+len("…") {
		t.Errorf("%d attributes, a message of %d bytes", len(last.GetAttributes()), len(last.GetMessage()))
	}
}

// No record is missed or repeated between the recorded ones and the subscription; a slow reader learns how many it
// lost, and delays nothing.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	r, log := logger(new(bytes.Buffer))
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range MaxWarnings / 4 {
				log.Warn("x")
			}
		})
	}
	records, w := r.subscribe()
	defer w.Close()
	writers.Wait()
	next := int64(1)
	for _, record := range append(records, w.Take().Values...) {
		if record.GetNumber() != next {
			t.Fatalf("record %d follows %d", record.GetNumber(), next-1)
		}
		next++
	}
	if next != MaxWarnings+1 {
		t.Errorf("the last record is %d", next-1)
	}
	for range MaxWarnings + 5 {
		log.Warn("too many")
	}
	if batch := w.Take(); batch.Dropped != 5 || len(batch.Values) != MaxWarnings || batch.Values[0].GetNumber() != MaxWarnings+6 {
		t.Errorf("%d records were lost, %d queued from %v", batch.Dropped, len(batch.Values), batch.Values[0])
	}
}
