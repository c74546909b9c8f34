package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// wire is a connection on which a test says what no client would.
type wire struct {
	net.Conn
	*http2.Framer
	t    *testing.T
	buf  bytes.Buffer
	head *hpack.Encoder
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

// open begins a call.
func (w *wire) open(stream uint32) error {
	w.buf.Reset()
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/copilot.bridge.v1.RuntimeService/GetServerInfo"}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = w.head.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return w.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: w.buf.Bytes(), EndHeaders: true})
}

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
	if _, err := bridgev1.NewRuntimeServiceClient(r.Conn).GetServerInfo(ctx, &bridgev1.GetServerInfoRequest{}); err != nil {
		t.Errorf("others get %v", err)
	}
}

func TestPingFlood(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t, server.Config{}, info{})
	w := dialWire(t, r)
	for range 100 {
		if w.WritePing(false, [8]byte{}) != nil {
			break
		}
	}
	if said := w.ended(); !strings.Contains(said, "ENHANCE_YOUR_CALM") {
		t.Errorf("the server ends with %q", said)
	}
	serves(t, r)
}

// Streams that are opened and reset at once hold nothing up.
func TestRapidReset(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t, server.Config{MaxConcurrentStreams: 16}, info{})
	w := dialWire(t, r)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, w.Conn)
	}()
	for i := range uint32(20_000) {
		if w.open(2*i+1) != nil || w.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
			break // it has had enough
		}
	}
	serves(t, r)
	_ = w.Close()
	<-drained
}

// More streams at once than are allowed are refused, each by itself.
func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	const most = 8
	r := servertest.Start(t, server.Config{MaxConcurrentStreams: most}, info{})
	w := dialWire(t, r)
	for i := range uint32(most + 4) {
		if err := w.open(2*i + 1); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.SetReadDeadline(time.Now().Add(20 * time.Second))
	for refused := 0; refused < 4; {
		f, err := w.ReadFrame()
		if err != nil {
			t.Fatalf("%d streams are refused: %v", refused, err)
		}
		if reset, ok := f.(*http2.RSTStreamFrame); ok && reset.ErrCode == http2.ErrCodeRefusedStream {
			refused++
		}
	}
	serves(t, r)
}

// A request that never ends holds up nobody but its caller.
func TestSlowLoris(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t, server.Config{}, info{})
	for range 50 {
		w := dialWire(t, r)
		if err := w.open(1); err != nil {
			t.Fatal(err)
		}
		if err := w.WriteData(1, false, []byte{0, 0, 0, 1, 0, 'x'}); err != nil { // 256 bytes are to come
			t.Fatal(err)
		}
		var d net.Dialer // and one that does not even begin
		conn, err := d.DialContext(t.Context(), r.Server.Addrs()[0].Network(), r.Server.Addrs()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	serves(t, r)
}

func TestHeaderFlood(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t, server.Config{}, info{})
	ctx := t.Context()
	for range 100 {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-flood", strings.Repeat("x", 1000))
	}
	if _, err := bridgev1.NewRuntimeServiceClient(r.Dial(t, 0)).GetServerInfo(ctx, &bridgev1.GetServerInfoRequest{}); err == nil {
		t.Error("100 kB of headers are taken")
	}
	// A block of headers that never ends.
	w := dialWire(t, r)
	if err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}); err != nil {
		t.Fatal(err)
	}
	piece := append([]byte{0x00, 0x01, 'x', 0x7f, 0x80, 0x7e}, bytes.Repeat([]byte{'y'}, 127+126*128)...)
	go func() {
		for range 1000 {
			if w.WriteContinuation(1, false, piece[:min(len(piece), 16<<10)]) != nil {
				return
			}
		}
	}()
	w.ended()
	serves(t, r)
}

func TestHugeFrame(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t, server.Config{}, info{})
	w := dialWire(t, r)
	_, _ = w.Conn.Write([]byte{0xff, 0xff, 0xff, 0x0, 0x0, 0, 0, 0, 1}) // DATA of 16 MiB
	w.ended()
	serves(t, r)
}

// A message is as large as it is when it is unpacked.
func TestCompressionBomb(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	r := servertest.Start(t, server.Config{MaxRecvBytes: limit}, info{})
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(make([]byte, 64*limit)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes become %d", packed.Len(), 64*limit)
	if packed.Len() > limit {
		t.Fatal("the bomb is too large to come in")
	}
	_, err := bridgev1.NewRuntimeServiceClient(r.Conn).Ping(t.Context(), &bridgev1.PingRequest{Message: strings.Repeat("a", 64*limit)},
		grpc.UseCompressor(grpcgzip.Name), grpc.MaxCallSendMsgSize(128*limit))
	if st := grpcstatus.Convert(err); st.Code() != codes.ResourceExhausted && st.Code() != codes.Unimplemented {
		t.Errorf("%v", st)
	}
	serves(t, r)
}
