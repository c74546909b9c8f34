package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
)

// Requests cost what is there of them, half sent or not; a stream that goes beyond the limit is
// refused, and the others on the connection go on.
func TestRequestBytes(t *testing.T) {
	t.Parallel()
	for limit, others := range map[string]map[string]bool{ // by who is still served
		"connection_request_bytes": {"acme": true, "acme2": true, "rival": true},
		"caller_request_bytes":     {"acme": false, "acme2": true, "rival": true},
		"request_bytes":            {"acme": false, "acme2": false, "rival": true},
	} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			s := startTenanted(t, limit+": 1000000", server.Config{})
			w := s.wire("acme")
			half(t, w, 900_000)
			header := map[string]string{"authorization": "Bearer " + tokenOf("acme")}
			if err := w.call(3, serverInfo, header); err != nil {
				t.Fatal(err)
			}
			_ = w.WriteData(3, false, []byte{0, 0, 0xff, 0xff, 0xff})
			for range 20 {
				_ = w.WriteData(3, false, make([]byte, 16<<10))
			}
			fields := w.fields(3)
			if fields["grpc-status"] != "8" || fields["copilot-reason"] != "LIMIT_EXCEEDED" ||
				!strings.Contains(fields["grpc-message"], limit) {
				t.Errorf("the stream ends with %v", fields)
			}
			for name, served := range others {
				o := s.wire(name) // so little is taken
				_ = o.WriteData(1, false, []byte{0, 0, 0xff, 0xff, 0xff})
				for range 12 {
					_ = o.WriteData(1, false, make([]byte, 16<<10))
				}
				if got := o.refused(1); got == served {
					t.Errorf("%s is refused: %v", name, got)
				}
			}
			if !w.answers() {
				t.Error("the connection is closed")
			}
			// Released bytes can be used again.
			_ = w.WriteRSTStream(1, http2.ErrCodeCancel)
			eventually(t, "room", func() bool { _, err := s.as("acme"); return err == nil })
		})
	}
}

// On a connection that a proxy shares among callers, each pays for its own requests, in whatever order their proofs come. Those
// without a valid proof are refused once they have sent as much as a connection without one may.
func TestRequestBytesOfSharedConnections(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		// first has the connection, half sends 900 kB of a request, then another caller calls.
		first, half, then string
		refused           bool
		limited           map[string]bool // callers who may not send much more
	}{
		"the other pays nothing":   {"rival", "rival", "acme", false, map[string]bool{"acme": false, "acme2": false}},
		"a caller pays everywhere": {"rival", "acme", "rival", false, map[string]bool{"acme": true, "acme2": true, "rival": false}},
		"also the first one":       {"acme", "acme", "rival", false, map[string]bool{"acme": true, "rival": false}},
		"nobody pays for a wrong token": {"acme", "stranger", "acme", true,
			map[string]bool{"acme": false, "acme2": false, "rival": false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startTenanted(t, "request_bytes: 1000000", server.Config{})
			w := s.wire(tc.first)
			_ = w.WriteRSTStream(1, http2.ErrCodeCancel)
			call := func(stream uint32, who string) {
				if err := w.call(stream, serverInfo, map[string]string{"authorization": "Bearer " + tokenOf(who)}); err != nil {
					t.Fatal(err)
				}
			}
			much := func(w *wire, stream uint32, bytes int) (refused bool) {
				_ = w.WriteData(stream, false, []byte{0, 0, 0xff, 0xff, 0xff})
				for sent := 0; sent < bytes; sent += 16 << 10 {
					_ = w.WriteData(stream, false, make([]byte, 16<<10))
				}
				return w.refused(stream)
			}
			call(3, tc.half)
			if got := much(w, 3, 900_000); got != tc.refused {
				t.Errorf("%s is refused: %v", tc.half, got)
			}
			call(5, tc.then)
			_ = w.WriteData(5, true, make([]byte, 5))
			if fields := w.fields(5); fields["grpc-status"] != "0" {
				t.Errorf("the call of %s: %v", tc.then, fields)
			}
			for who, limited := range tc.limited {
				if got := much(s.wire(who), 1, 200_000); got != limited {
					t.Errorf("%s is refused: %v", who, got)
				}
			}
		})
	}
}

// The overall bound belongs to no tenant: the last caller is refused, and the error does not name the tenant's
// limit.
func TestOverallBounds(t *testing.T) {
	t.Parallel()
	s := startTenanted(t, "", server.Config{})
	write(t, filepath.Join(s.dir, "policy"),
		[]byte("version: 1\nidentity: {tokens: tokens}\nlimits: {request_bytes: 1000000, connections: 2}\n"+
			"tenants:\n  acme: {members: [{token: acme, role: owner}]}\n  rival: {members: [{token: rival, role: "+
			"owner}]}\n"))
	if err := s.policy.Reload(); err != nil {
		t.Fatal(err)
	}
	half(t, s.wire("acme"), 900_000)
	w := s.wire("rival")
	_ = w.WriteData(1, false, []byte{0, 0, 0xff, 0xff, 0xff})
	for range 12 {
		_ = w.WriteData(1, false, make([]byte, 16<<10))
	}
	if fields := w.fields(1); !strings.Contains(fields["grpc-message"], "the%20server%27s%20limit%20request_bytes") &&
		!strings.Contains(fields["grpc-message"], "the%20server's%20limit%20request_bytes") {
		t.Errorf("it ends with %v", fields)
	}
	_, err := s.as("rival")
	wantLimit(t, "the third connection", err, "connections")
}

// fields waits for a call's end and returns its trailers.
func (w *wire) fields(stream uint32) map[string]string {
	w.t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(20 * time.Second))
	if w.ReadMetaHeaders == nil {
		w.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	}
	for {
		f, err := w.ReadFrame()
		if err != nil {
			w.t.Fatal(err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamID == stream && h.StreamEnded() {
			fields := map[string]string{}
			for _, field := range h.Fields {
				fields[field.Name] = field.Value
			}
			return fields
		}
	}
}

// refused reports whether a stream was ended by the server by now.
func (w *wire) refused(stream uint32) (over bool) {
	w.t.Helper()
	w.pings++
	if w.WritePing(false, [8]byte{w.pings}) != nil {
		return true
	}
	_ = w.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		f, err := w.ReadFrame()
		if err != nil {
			w.t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			over = over || f.StreamID == stream && f.StreamEnded()
		case *http2.PingFrame:
			if f.IsAck() && f.Data == [8]byte{w.pings} {
				return over
			}
		}
	}
}

// bomb is a message, packed, that claims to be of some size unless that is 0.
func bomb(t *testing.T, size int, claim uint32) []byte {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	unknown := protowire.AppendBytes(protowire.AppendTag(nil, 15, protowire.BytesType), make([]byte, size))
	if _, err := z.Write(unknown); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	b := append([]byte{1, 0, 0, 0, 0}, packed.Bytes()...)
	binary.BigEndian.PutUint32(b[1:], uint32(packed.Len())) //nolint:gosec // small
	if claim > 0 {
		binary.LittleEndian.PutUint32(b[len(b)-4:], claim)
	}
	return b
}

// A packed message counts as large as it is unpacked, before it is; one that claims to be
// smaller is not unpacked further than that.
func TestPackedRequestsCountUnpacked(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	served := make(chan struct{})
	held := &sessions{get: func(_ context.Context, _ *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse,
		error) {
		<-served
		return &bridgev1.GetSessionResponse{}, nil
	}}
	s := startTenanted(t, "caller_request_bytes: 10000000", server.Config{}, held)
	defer close(served)
	w := s.wire("acme")
	header := map[string]string{"authorization": "Bearer " + tokenOf("acme"), "grpc-encoding": "gzip"}
	throw := func(stream uint32, b []byte) {
		if err := w.call(stream, "/copilot.bridge.v1.SessionService/GetSession", header); err != nil {
			t.Fatal(err)
		}
		_ = w.WriteData(stream, true, b)
	}
	throw(3, bomb(t, size, 0))
	throw(5, bomb(t, size, 0))
	throw(7, bomb(t, size, 0))
	if fields := w.fields(7); fields["grpc-status"] != "8" ||
		!strings.Contains(fields["grpc-message"], "caller_request_bytes") {
		t.Errorf("the third ends with %v", fields)
	}
	throw(9, bomb(t, size, 10))
	if fields := w.fields(9); fields["grpc-status"] == "0" || !strings.Contains(fields["grpc-message"], "longer") {
		t.Errorf("one that lies ends with %v", fields)
	}
	if _, err := s.as("acme2"); err != nil {
		t.Errorf("another caller: %v", err)
	}
}

// The pieces of a request are held until the call ends, and count until then.
func TestPiecesCountTogether(t *testing.T) {
	t.Parallel()
	collect := &sessions{sendStream: func(_ context.Context, _ *bridgev1.SendRequest,
		next func() (*bridgev1.AttachmentChunk, error)) (*bridgev1.SendStreamResponse, error) {
		for {
			if _, err := next(); err == io.EOF {
				return &bridgev1.SendStreamResponse{}, nil
			} else if err != nil {
				return nil, err
			}
		}
	}}
	s := startTenanted(t, "caller_request_bytes: 4000000", server.Config{}, collect)
	send := func(name string, chunks int) error {
		conn, err := s.as(name)
		if err != nil {
			return err
		}
		stream, err := bridgev1.NewSessionServiceClient(conn).SendStream(t.Context())
		if err != nil {
			return err
		}
		err = stream.Send(&bridgev1.SendStreamRequest{Piece: &bridgev1.SendStreamRequest_Request{Request: &bridgev1.SendRequest{}}})
		for i := 0; i < chunks && err == nil; i++ {
			err = stream.Send(&bridgev1.SendStreamRequest{Piece: &bridgev1.SendStreamRequest_Chunk{Chunk: &bridgev1.AttachmentChunk{Data: make([]byte, 1<<20)}}})
		}
		_, err = stream.CloseAndRecv()
		return err
	}
	if err := send("acme", 3); err != nil {
		t.Errorf("3 MiB: %v", err)
	}
	err := send("acme", 8)
	wantLimit(t, "8 MiB", err, "caller_request_bytes")
	// The bytes of the refused stream are released when its handler has ended. The caller does not wait for
	// that.
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := send("acme", 3)
		if err == nil {
			break
		}
		if status.Code(err) != codes.ResourceExhausted || time.Now().After(deadline) {
			t.Fatalf("3 MiB again: %v", err)
		}
	}
	if err := send("rival", 8); err != nil {
		t.Errorf("another tenant's 8 MiB: %v", err)
	}
}

// Streams cost something from their headers on, also those whose request never comes.
func TestOpenStreamsCount(t *testing.T) {
	t.Parallel()
	s := startTenanted(t, "caller_request_bytes: 1000000", server.Config{})
	w := s.wire("acme")
	header := map[string]string{"authorization": "Bearer " + tokenOf("acme"), "x-long": strings.Repeat("x", 10_000)}
	const streams, last = 100, 5
	refused := 0
	for i := range uint32(streams) {
		if err := w.call(2*i+3, serverInfo, header); err != nil {
			t.Fatal(err)
		}
	}
	for i := uint32(streams - last); i < streams; i++ {
		if fields := w.fields(2*i + 3); fields["grpc-status"] == strconv.Itoa(8) &&
			strings.Contains(fields["grpc-message"], "caller_request_bytes") {
			refused++
		}
	}
	if refused != last {
		t.Errorf("%d of the last streams are refused", refused)
	}
	if _, err := s.as("acme2"); err != nil {
		t.Errorf("another caller: %v", err)
	}
}
