package natslog

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/jsapi"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// Servers that stop and start again one after the other lose and double nothing. Every change is made until it
// succeeds; each may have been stored by an attempt that failed.
func TestServersInTurn(t *testing.T) {
	t.Parallel()
	servers, _, logs := replicated(t)
	opened, _, err := logs.Open("s", 1, 7, func(uint64, []byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	const each = 50
	var want []uint64
	add := func() {
		n := opened.Last() + 1
		for opened.Last() < n { // the test's own limit ends it
			if err := opened.Append(n-1, numbered(n)); errors.Is(err, backend.ErrStale) {
				t.Fatal(err)
			}
		}
		want = append(want, n)
	}
	for _, server := range servers {
		for range each {
			add()
		}
		server.Stop()
		for range each {
			add()
		}
		server.Start()
	}
	var got []uint64
	_, _, err = logs.Open("s", 2, 9, func(n uint64, _ []byte) error { got = append(got, n); return nil })
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the next owner finds %d entries, want %d: %v", len(got), len(want), err)
	}
}

// BenchmarkAppend appends batches of events of 1 KB, in turns with JetStream's own publication of the same bytes: three
// servers that sync each message, three copies. ratio is JetStream's time by ours.
func BenchmarkAppend(b *testing.B) {
	_, js, logs := replicated(b, natstest.SyncAlways)
	for _, events := range []int{1, 64, 200} {
		b.Run(fmt.Sprint("events=", events), func(b *testing.B) {
			var entries []backend.Entry
			for n := range uint64(events) { //nolint:gosec // small
				entries = append(entries, backend.Entry{Number: n + 1, Body: make([]byte, 1024)})
			}
			body := appendEntries(nil, entries)
			opened, _, err := logs.Open(fmt.Sprint("s", events), 1, 7, func(uint64, []byte) error { return nil })
			if err != nil {
				b.Fatal(err)
			}
			var bare, ours time.Duration
			for b.Loop() {
				begin := time.Now()
				if _, err := js.Publish(b.Context(), "log.bare", body); err != nil {
					b.Fatal(err)
				}
				middle := time.Now()
				last := opened.Last()
				for i := range entries {
					entries[i].Number = last + uint64(i) + 1 //nolint:gosec // small
				}
				if err := opened.Append(last, entries); err != nil {
					b.Fatal(err)
				}
				bare, ours = bare+middle.Sub(begin), ours+time.Since(middle)
			}
			b.ReportMetric(float64(b.N*events)/ours.Seconds(), "events/s")
			b.ReportMetric(float64(bare)/float64(ours), "ratio")
			if err := opened.Delete(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// replicated returns logs with three copies on three servers.
func replicated(tb testing.TB, options ...natstest.Option) ([]*natstest.Server, jetstream.JetStream, *Logs) {
	tb.Helper()
	servers := natstest.Cluster(tb, 3, options...)
	nc, err := nats.Connect(servers[0].URL()+","+servers[1].URL()+","+servers[2].URL(), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectBufSize(-1))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = js.CreateStream(tb.Context(), jetstream.StreamConfig{
		Name: "log", Subjects: []string{"log.*"}, AllowDirect: true, Replicas: 3,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return servers, js, New(Config{
		Stream:  jsapi.Stream{JetStream: js, Name: "log", Timeout: requestTimeout},
		Subject: func(session string) string { return "log." + session },
	})
}
