package natslog

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend/backendtest"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/jsapi"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

const (
	reconnectWait  = 20 * time.Millisecond
	requestTimeout = 500 * time.Millisecond
)

// testLogs returns logs in a new stream of a server.
func testLogs(t testing.TB, server *natstest.Server, partBytes int) *Logs {
	t.Helper()
	js := server.JetStream()
	_, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
		Name: "log", Subjects: []string{"log.*"}, AllowDirect: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Stream: jsapi.Stream{JetStream: js, Name: "log"}, PartBytes: partBytes, ReadTimeout: 10 * time.Second,
		Subject: func(session string) string { return "log." + hex.EncodeToString([]byte(session)) },
	})
}

func TestLogs(t *testing.T) {
	t.Parallel()
	for name, partBytes := range map[string]int{"one part": 0, "several parts": maxHead + 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backendtest.Logs(t, func(t testing.TB) backend.Logs {
				if partBytes > 0 && bytes.Contains([]byte(t.Name()), []byte("trimmed")) {
					t.Skip("hundreds of thousands of messages")
				}
				return testLogs(t, natstest.Start(t), partBytes)
			})
		})
	}
}
