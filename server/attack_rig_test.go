package server_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// wire is a connection on which a test says what no client would.
type wire struct {
	net.Conn
	*http2.Framer
	t    *testing.T
	buf  bytes.Buffer
	head *hpack.Encoder
	// pings counts the pings that answers has sent.
	pings byte
}

func dialWire(t *testing.T, r *servertest.Running) *wire {
	t.Helper()
	addr := r.Server.Addrs()[0]
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	w := &wire{Conn: conn, Framer: http2.NewFramer(conn, conn), t: t}
	w.head = hpack.NewEncoder(&w.buf)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return w
}

// serverInfo is the method that most of the attacks call.
const serverInfo = "/copilot.bridge.v1.RuntimeService/GetServerInfo"

// open begins a call.
func (w *wire) open(stream uint32) error { return w.call(stream, serverInfo, nil) }

// call begins a call of a method, with more headers.
func (w *wire) call(stream uint32, method string, more map[string]string) error {
	w.buf.Reset()
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = w.head.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	for name, value := range more {
		_ = w.head.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	return w.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: w.buf.Bytes(), EndHeaders: true})
}

// status waits for a call's end, and returns its code as the wire has it.
func (w *wire) status(stream uint32) (code string) {
	w.t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(20 * time.Second))
	w.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := w.ReadFrame()
		if err != nil {
			w.t.Error(err)
			return code
		}
		h, ok := f.(*http2.MetaHeadersFrame)
		if !ok || h.StreamID != stream {
			continue
		}
		for _, field := range h.Fields {
			if field.Name == "grpc-status" {
				code = field.Value
			}
		}
		if h.StreamEnded() {
			return code
		}
	}
}

// bearer is a token as credentials.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return false }

// ended waits until the server has had enough, and returns what it said of why.
func (w *wire) ended() string {
	w.t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(20 * time.Second))
	said := ""
	for {
		f, err := w.ReadFrame()
		if g, ok := f.(*http2.GoAwayFrame); ok {
			said = g.ErrCode.String() + " " + string(g.DebugData())
		}
		if err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				w.t.Error("the server keeps the connection")
			}
			return said
		}
	}
}

// serves checks that others are served as ever.
func serves(t *testing.T, r *servertest.Running) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := bridgev1.NewRuntimeServiceClient(r.Conn).GetServerInfo(ctx,
		&bridgev1.GetServerInfoRequest{}); err != nil {
		t.Errorf("others get %v", err)
	}
}

// siege is what an attack may cost at most.
type siege struct {
	goroutines int
	bytes      int64
}

// during checks, while attack goes on, that others are served, and that the process has no
// more than what the siege allows. Tests that use it are not parallel: all that there is more
// of is the attack's.
func (g siege) during(t *testing.T, r *servertest.Running, attack func()) {
	t.Helper()
	serves(t, r)
	before, base := footprint()
	over := make(chan struct{})
	go func() {
		defer close(over)
		attack()
	}()
	var worst time.Duration
	most, held, calls := 0, int64(0), 0
	for end := false; !end; calls++ {
		select {
		case <-over:
			end = true // and once more
		default:
		}
		begin := time.Now()
		serves(t, r)
		worst = max(worst, time.Since(begin))
		goroutines, bytes := footprint()
		most, held = max(most, goroutines-before), max(held, bytes-base)
	}
	t.Logf("%d calls of others, the slowest %v; %d goroutines and %d KiB more", calls, worst, most, held>>10)
	if most > g.goroutines || held > g.bytes {
		t.Errorf("there are up to %d goroutines and %d bytes more, want at most %d and %d", most, held, g.goroutines,
			g.bytes)
	}
}

// footprint is what the process has: its live memory, not what is to be collected.
func footprint() (goroutines int, bytes int64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), int64(m.HeapAlloc) //nolint:gosec // no such heap
}

// drain reads what the server says, so that it never waits for the attacker.
func (w *wire) drain() {
	w.t.Helper()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, w.Conn)
	}()
	w.t.Cleanup(func() {
		_ = w.Close()
		<-drained
	})
}

// dialKnown begins a call with a proof, again where a busy machine made it come too late.
func dialKnown(t *testing.T, r *servertest.Running) *wire {
	t.Helper()
	for range 10 {
		known := dialWire(t, r)
		if known.call(1, serverInfo, map[string]string{"authorization": "Bearer " + token}) == nil && known.answers() {
			return known
		}
	}
	t.Fatal("a caller with a proof is turned away")
	return nil
}

// answers tells whether the server has read all that was sent, and goes on.
func (w *wire) answers() bool {
	w.t.Helper()
	w.pings++
	if w.WritePing(false, [8]byte{w.pings}) != nil {
		return false
	}
	_ = w.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		f, err := w.ReadFrame()
		if err != nil {
			return false
		}
		if p, ok := f.(*http2.PingFrame); ok && p.IsAck() && p.Data == [8]byte{w.pings} {
			return true
		}
	}
}
