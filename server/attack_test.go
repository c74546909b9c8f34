package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // as the server's program has it
	"google.golang.org/grpc/metadata"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// Pings more often than allowed end the connection, whether or not there are calls on it.
func TestPingFlood(t *testing.T) { //nolint:paralleltest // it measures the process
	for name, calls := range map[string]int{"idle": 0, "with a call": 1} {
		r := servertest.Start(t, server.Config{}, info{})
		w := dialWire(t, r)
		siege{50, 8 << 20}.during(t, r, func() {
			if calls > 0 && w.open(1) != nil {
				return
			}
			for range 2_000 {
				if w.WritePing(false, [8]byte{}) != nil {
					break
				}
			}
		})
		if said := w.ended(); !strings.Contains(said, "ENHANCE_YOUR_CALM") {
			t.Errorf("%s: the server ends with %q", name, said)
		}
	}
}

// Settings have to be acknowledged: who sends them and does not read is not read either.
func TestSettingsFlood(t *testing.T) { //nolint:paralleltest // it measures the process
	r := servertest.Start(t, server.Config{}, info{})
	w := dialWire(t, r)
	siege{50, 16 << 20}.during(t, r, func() {
		_ = w.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		for range 200_000 {
			if w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16}) != nil {
				break // it reads no more
			}
		}
	})
}

// Streams that are opened and reset at once run no more calls than may run at once.
func TestRapidReset(t *testing.T) { //nolint:paralleltest // it measures the process
	const most = 16
	var at, peak atomic.Int64
	end := make(chan struct{})
	slow := &sessions{get: func(ctx context.Context, _ *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse,
		error) {
		defer at.Add(-1)
		for now := at.Add(1); ; {
			if seen := peak.Load(); now <= seen || peak.CompareAndSwap(seen, now) {
				break
			}
		}
		<-end // as one that does not look whether its caller is there
		return &bridgev1.GetSessionResponse{}, ctx.Err()
	}}
	r := servertest.Start(t, server.Config{MaxConcurrentStreams: most}, info{}, slow)
	w := dialWire(t, r)
	w.drain()
	siege{100, 16 << 20}.during(t, r, func() {
		defer close(end)
		_ = w.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)) // it may be read no more
		for i := range uint32(20_000) {
			err := w.call(2*i+1, "/copilot.bridge.v1.SessionService/GetSession", nil)
			if err != nil || w.WriteData(2*i+1, true, make([]byte, 5)) != nil ||
				w.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
				break // it has had enough
			}
		}
	})
	if n := peak.Load(); n == 0 || n > most {
		t.Errorf("%d calls ran at once, want some and at most %d", n, most)
	}
}

// Streams above the permitted number are refused one by one.
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

// Connections on which nothing ever comes to its end: a preface, headers, a request. Over TCP
// there are no more of them than may be strangers, and others get in all the same.
func TestSlowLoris(t *testing.T) { //nolint:paralleltest // it measures the process
	const most, tries = 40, 200
	r := servertest.Start(t, server.Config{Listen: []string{"127.0.0.1:0"}, Token: token, MaxStrangers: most}, info{})
	conn := r.Conn
	r.Conn = r.Dial(t, 0, grpc.WithPerRPCCredentials(bearer(token)))
	_ = conn.Close()
	siege{most*10 + 100, 32 << 20}.during(t, r, func() {
		for i := range tries {
			w := dialWire(t, r)
			switch i % 3 {
			case 0: // 16 MiB are to come
				_ = w.open(1)
				_ = w.WriteData(1, false, []byte{0, 0, 0xff, 0xff, 0xff, 'x'})
			case 1: // as is the end of the headers
				_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			default: // and the end of a frame
				_, _ = w.Write([]byte{0, 1, 0})
			}
		}
		// A caller that connects meanwhile and authenticates stays connected.
		if _, err := bridgev1.NewRuntimeServiceClient(r.Dial(t, 0,
			grpc.WithPerRPCCredentials(bearer(token)))).GetServerInfo(t.Context(),
			&bridgev1.GetServerInfoRequest{}); err != nil {
			t.Errorf("one more gets %v", err)
		}
	})
}

// A stranger has so much time and so many bytes, and a caller with a proof all it needs.
func TestStrangers(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t, server.Config{Listen: []string{"127.0.0.1:0"}, Token: token, StrangerTime: time.Second},
		info{})
	late := dialWire(t, r)
	if said := late.ended(); said != "" {
		t.Errorf("a late one is told %q", said)
	}
	wordy := dialWire(t, r)
	if err := wordy.open(1); err != nil {
		t.Fatal(err)
	}
	_ = wordy.WriteData(1, false, []byte{0, 0, 0xff, 0xff, 0xff})
	for range 64 {
		if wordy.WriteData(1, false, make([]byte, 16<<10)) != nil {
			break
		}
	}
	wordy.ended()
	known := dialKnown(t, r)
	_ = known.WriteData(1, false, []byte{0, 0, 0x10, 0, 0}) // 1 MiB
	for range 63 {
		if err := known.WriteData(1, false, make([]byte, 16<<10)); err != nil {
			t.Fatal(err)
		}
	}
	late = dialWire(t, r) // when that has come and gone, known is older than a stranger may be
	late.ended()
	if err := known.WriteData(1, true, make([]byte, 16<<10)); err != nil || !known.answers() {
		t.Errorf("a caller with a proof: %v", err)
	}
}

// Headers that are too many, that never end, and that are small on the wire alone.
func TestHeaderFlood(t *testing.T) { //nolint:paralleltest // it measures the process
	r := servertest.Start(t, server.Config{}, info{})
	ctx := t.Context()
	for range 100 {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-flood", strings.Repeat("x", 1000))
	}
	if _, err := bridgev1.NewRuntimeServiceClient(r.Dial(t, 0)).GetServerInfo(ctx,
		&bridgev1.GetServerInfoRequest{}); err == nil {
		t.Error("100 kB of headers are taken")
	}
	siege{100, 16 << 20}.during(t, r, func() {
		w := dialWire(t, r)
		if err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}); err != nil {
			t.Error(err)
		}
		piece := append([]byte{0x00, 0x01, 'x', 0x7f, 0x80, 0x7e}, bytes.Repeat([]byte{'y'}, 127+126*128)...)
		go func() {
			for range 200 {
				if w.WriteContinuation(1, false, piece[:min(len(piece), 16<<10)]) != nil {
					return
				}
			}
		}()
		w.ended()
	})
	// A name and value that the table keeps, and thousands of references to it, of a byte each.
	bomb := hpack.HeaderField{Name: "x-bomb", Value: strings.Repeat("x", 3000)}
	siege{100, 16 << 20}.during(t, r, func() {
		w := dialWire(t, r)
		w.drain()
		for i := range uint32(30) {
			w.buf.Reset()
			for range 10_000 {
				_ = w.head.WriteField(bomb)
			}
			if w.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: w.buf.Bytes(),
				EndHeaders: true}) != nil {
				return
			}
		}
	})
}

func TestHugeFrame(t *testing.T) { //nolint:paralleltest // it measures the process
	r := servertest.Start(t, server.Config{}, info{})
	w := dialWire(t, r)
	siege{50, 8 << 20}.during(t, r, func() {
		_, _ = w.Conn.Write([]byte{0xff, 0xff, 0xff, 0x0, 0x0, 0, 0, 0, 1}) // DATA of 16 MiB
		w.ended()
	})
}

// Lengths that are announced cost nothing before what they are of comes.
func TestHugeMessages(t *testing.T) { //nolint:paralleltest // it measures the process
	const streams = 500
	r := servertest.Start(t, server.Config{}, info{})
	w := dialWire(t, r)
	w.drain()
	siege{streams + 100, 32 << 20}.during(t, r, func() {
		for i := range uint32(streams) {
			_ = w.open(2*i + 1)
			_ = w.WriteData(2*i+1, false, []byte{0, 0, 0xff, 0xff, 0xff, 'x'}) // 16 MiB; 4 GiB are refused at once
			_ = w.open(2*(streams+i) + 1)
			_ = w.WriteData(2*(streams+i)+1, false, []byte{0, 0xff, 0xff, 0xff, 0xff, 'x'})
		}
	})
}

// A message is as large as it is when it is unpacked.
func TestCompressionBomb(t *testing.T) { //nolint:paralleltest // it measures the process
	const limit = 128 << 10
	r := servertest.Start(t, server.Config{MaxRecvBytes: limit}, info{})
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(make([]byte, 64*limit)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	bomb := append([]byte{1, 0, 0, 0, 0}, packed.Bytes()...)
	binary.BigEndian.PutUint32(bomb[1:], uint32(packed.Len())) //nolint:gosec // it is below limit
	if packed.Len() > limit {
		t.Fatal("the bomb is too large to come in")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	dialWire(t, r).throw(bomb)
	runtime.ReadMemStats(&after)
	if most := uint64(32 * limit); after.TotalAlloc-before.TotalAlloc > most {
		t.Errorf("%d bytes were taken for a message of at most %d", after.TotalAlloc-before.TotalAlloc, limit)
	}
	siege{100, 8 << 20}.during(t, r, func() {
		for range 5 {
			dialWire(t, r).throw(bomb)
		}
	})
}

// throw sends a compressed message, and sees it refused.
func (w *wire) throw(bomb []byte) {
	w.t.Helper()
	if err := w.call(1, serverInfo, map[string]string{"grpc-encoding": "gzip"}); err != nil {
		w.t.Error(err)
	}
	for len(bomb) > 0 {
		n := min(len(bomb), 16<<10)
		if err := w.WriteData(1, n == len(bomb), bomb[:n]); err != nil {
			w.t.Error(err)
			return
		}
		bomb = bomb[n:]
	}
	if code := w.status(1); code != strconv.Itoa(int(codes.ResourceExhausted)) {
		w.t.Errorf("the server answers with the status %q", code)
	}
}
