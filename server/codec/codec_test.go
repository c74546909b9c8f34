package codec

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that ours must equal
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// wire is a stream that keeps the bytes of what is sent on it.
type wire struct {
	grpc.ServerStream
	tb   testing.TB
	sent [][]byte
}

func (w *wire) Context() context.Context { return w.tb.Context() }

func (w *wire) SendMsg(m any) error {
	b, err := New().Marshal(m)
	if err != nil {
		return err
	}
	w.sent = append(w.sent, b.Materialize())
	b.Free()
	return nil
}

// batch is a frame of one event with n bytes of payload, and its encoded form in pieces.
func batch(tb testing.TB, n int) (*bridgev1.SubscribeResponse, [][]byte) {
	tb.Helper()
	m := &bridgev1.SubscribeResponse{
		SessionId: "s1",
		Frame: &bridgev1.SubscribeResponse_Events{Events: &bridgev1.EventBatch{Events: []*bridgev1.Event{{
			Position:     &bridgev1.Position{Epoch: 1, Seq: 2},
			OriginalJson: proto.String(strings.Repeat("x", n)),
		}}}},
	}
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return m, [][]byte{b[:2], nil, b[2 : len(b)/2], b[len(b)/2:]}
}

func marshalled(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// In every form of a frame, the sent bytes are the bytes of its message.
func TestSinksSendTheBytesOfTheMessage(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 100, 1 << 10, 1 << 20} {
		m, pieces := batch(t, size)
		started := &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Started{Started: &bridgev1.AttachStarted{ParticipantId: "p"}}}
		outcome := &bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Outcome{Outcome: new(bridgev1.TurnOutcome)}}
		many := make([][]byte, 0, size)
		for rest := marshalled(t, m); len(rest) > 0 && len(many) < 50; rest = rest[1:] {
			many = append(many, rest[:1])
			if len(many) == 50 {
				many[49] = rest
			}
		}
		inAttach := &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Stream{Stream: m}}
		inRun := &bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Stream{Stream: m}}
		for name, tc := range map[string]struct {
			sink  func(grpc.ServerStream) frame.Sink
			frame frame.Frame
			want  proto.Message
		}{
			"subscribe, wire":        {SubscribeSink, frame.Frame{Wire: pieces}, m},
			"subscribe, many pieces": {SubscribeSink, frame.Frame{Wire: many}, m},
			"subscribe, message":     {SubscribeSink, frame.Frame{Message: m}, m},
			"attach, wire":           {AttachSink, frame.Frame{Wire: pieces}, inAttach},
			"attach, many pieces":    {AttachSink, frame.Frame{Wire: many}, inAttach},
			"attach, wrapped":        {AttachSink, frame.Frame{Message: m}, inAttach},
			"attach, own":            {AttachSink, frame.Frame{Message: started}, started},
			"run, wire":              {RunSink, frame.Frame{Wire: pieces}, inRun},
			"run, wrapped":           {RunSink, frame.Frame{Message: m}, inRun},
			"run, own":               {RunSink, frame.Frame{Message: outcome}, outcome},
		} {
			w := &wire{tb: t}
			if err := tc.sink(w)(tc.frame); err != nil {
				t.Errorf("%s, %d bytes: %v", name, size, err)
				continue
			}
			if !bytes.Equal(w.sent[0], marshalled(t, tc.want)) {
				t.Errorf("%s, %d bytes: the bytes differ", name, size)
			}
		}
	}
}

func TestSinkRefuses(t *testing.T) {
	t.Parallel()
	m, pieces := batch(t, 1)
	for name, f := range map[string]frame.Frame{
		"nothing":         {},
		"both":            {Message: m, Wire: pieces},
		"a foreign frame": {Message: new(bridgev1.Session)},
	} {
		for _, sink := range []func(grpc.ServerStream) frame.Sink{SubscribeSink, AttachSink, RunSink} {
			w := &wire{tb: t}
			if err := sink(w)(f); err == nil || len(w.sent) != 0 {
				t.Errorf("%s: error %v, %d messages sent", name, err, len(w.sent))
			}
		}
	}
}

// The caller may use its slice of pieces again as soon as the sink returns; only the
// bytes stay untouched.
func TestMarshalKeepsNoReferenceToTheFrame(t *testing.T) {
	t.Parallel()
	m, pieces := batch(t, 100)
	e := &encoded{pieces: pieces, field: 2}
	b, err := New().Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	clear(pieces)
	e.pieces = nil
	want := marshalled(t, &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Stream{Stream: m}})
	if !bytes.Equal(b.Materialize(), want) {
		t.Error("the bytes changed with the frame")
	}
}

func TestOrdinaryMessagesAsGRPCDoes(t *testing.T) {
	t.Parallel()
	theirs := encoding.GetCodecV2(Name)
	for _, size := range []int{0, 10, 5000, 1 << 20} {
		m, _ := batch(t, size)
		mine, err := New().Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		want, err := theirs.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mine.Materialize(), want.Materialize()) {
			t.Errorf("%d bytes: the bytes differ", size)
		}
		var back bridgev1.SubscribeResponse
		if err := New().Unmarshal(mine, &back); err != nil || !proto.Equal(m, &back) {
			t.Errorf("%d bytes: Unmarshal: %v", size, err)
		}
	}
	if _, err := New().Marshal("text"); err == nil {
		t.Error("a string was marshalled")
	}
	if err := New().Unmarshal(mem.BufferSlice{}, new(string)); err == nil {
		t.Error("unmarshalled into a string")
	}
	if _, err := New().Marshal(&bridgev1.Session{SessionId: "\xff"}); err == nil {
		t.Error("a string that is no UTF-8 was marshalled")
	}
}

// Sending shared bytes costs one allocation, however many bytes there are.
func TestMarshalAllocations(t *testing.T) {
	_, pieces := batch(t, 1<<16)
	for _, field := range []protowire.Number{0, 2} {
		var e any = &encoded{pieces: pieces, field: field}
		if n := testing.AllocsPerRun(100, func() {
			b, _ := New().Marshal(e)
			b.Free()
		}); n > 1 {
			t.Errorf("field %d: %v allocations", field, n)
		}
	}
}

func BenchmarkMarshal(b *testing.B) {
	for name, size := range map[string]int{"100B": 100, "4KB": 4 << 10, "256KB": 256 << 10} {
		m, pieces := batch(b, size)
		for kind, v := range map[string]any{
			"shared":  &encoded{pieces: pieces},
			"wrapped": &encoded{pieces: pieces, field: 2},
			"message": m,
		} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					out, err := New().Marshal(v)
					if err != nil {
						b.Fatal(err)
					}
					out.Free()
				}
			})
		}
	}
}
