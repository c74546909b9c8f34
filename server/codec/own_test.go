package codec

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
)

// The memory of a frame is released when gRPC has released its last piece, and not before. The bytes equal the
// bytes of shared pieces.
func TestOwnIsGivenBack(t *testing.T) {
	t.Parallel()
	for _, field := range []protowire.Number{0, 2} {
		_, pieces := batch(t, 5000)
		want, err := New().Marshal(&encoded{pieces: pieces, field: field})
		if err != nil {
			t.Fatal(err)
		}
		last := len(pieces) - 1
		own := frame.Take(len(pieces[last]))
		own.Bytes = append(own.Bytes, pieces[last]...)
		size := len(own.Bytes)
		pieces[last] = own.Bytes
		b, err := New().Marshal(&encoded{pieces: pieces, own: own, field: field})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Materialize(), want.Materialize()) {
			t.Errorf("field %d: the bytes differ", field)
		}
		b.Ref() // as the transport does
		b.Free()
		if len(own.Bytes) != size {
			t.Fatalf("field %d: given back while the transport has it", field)
		}
		r := b.Reader()
		b.Free() // the reader has its own
		if _, err := r.Discard(r.Remaining() - 1); err != nil || len(own.Bytes) != size {
			t.Fatalf("field %d: given back before the last byte: %v", field, err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if len(own.Bytes) != 0 {
			t.Errorf("field %d: not given back", field)
		}
	}
}

// Short frames are gRPC's to forget, not to give back.
func TestOwnIsPooled(t *testing.T) {
	t.Parallel()
	own := frame.Take(1)
	if mem.IsBelowBufferPoolingThreshold(cap(own.Bytes)) {
		t.Errorf("gRPC gives buffers of %d bytes never back", cap(own.Bytes))
	}
}
