package natslog

import (
	"errors"
	"slices"
	"testing"

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
	servers := natstest.Cluster(t, 3)
	nc, err := nats.Connect(servers[0].URL()+","+servers[1].URL()+","+servers[2].URL(), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "log", Subjects: []string{"log.*"}, AllowDirect: true, Replicas: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	logs := New(Config{
		Stream:  jsapi.Stream{JetStream: js, Name: "log", Timeout: requestTimeout},
		Subject: func(session string) string { return "log." + session },
	})
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

// BenchmarkAppend appends batches of 64 KB beside JetStream's own publication of the same bytes.
func BenchmarkAppend(b *testing.B) {
	logs := testLogs(b, natstest.Start(b, natstest.SyncAlways), 0)
	const size = 64 << 10
	body := make([]byte, size)
	b.Run("JetStream", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if _, err := logs.stream.JetStream.Publish(b.Context(), "log.bare", body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("log", func(b *testing.B) {
		b.SetBytes(size)
		opened, _, err := logs.Open("s", 1, 7, func(uint64, []byte) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
		for n := uint64(0); b.Loop(); n++ {
			if err := opened.Append(n, []backend.Entry{{Number: n + 1, Body: body}}); err != nil {
				b.Fatal(err)
			}
		}
		if err := opened.Delete(); err != nil {
			b.Fatal(err)
		}
	})
}
