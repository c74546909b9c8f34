package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/loadcli"
)

// counter is a frame of events that is counted, not decoded: what subscribers do with
// events must not take the processor from the server.
type counter struct {
	events int
	ends   int // of the events, those with which a blast ends
	gap    bool
}

// The fields of SubscribeResponse and EventBatch that count looks at.
const (
	responseEvents protowire.Number = 3
	responseGap    protowire.Number = 6
	batchEvents    protowire.Number = 1
)

func (c *counter) count(frame []byte) error {
	*c = counter{}
	return fields(frame, func(num protowire.Number, value []byte) error {
		switch num {
		case responseGap:
			c.gap = true
		case responseEvents:
			return fields(value, func(num protowire.Number, event []byte) error {
				if num == batchEvents {
					c.events++
					if len(event) < 512 && bytes.Contains(event, []byte(loadcli.Done)) {
						c.ends++
					}
				}
				return nil
			})
		}
		return nil
	})
}

// fields calls f for each length-delimited field.
func fields(b []byte, f func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, kind, b); n < 0 {
			return protowire.ParseError(n)
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b)
			if err := f(num, value); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}

// countingCodec reads frames into counters.
type countingCodec struct{}

func (countingCodec) Name() string { return "proto" }

func (countingCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (countingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(proto.Message); ok {
		return proto.Unmarshal(data.Materialize(), m)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return v.(*counter).count(buf.ReadOnlyData())
}

// subscriber is one stream of events.
type subscriber struct {
	stream grpc.ClientStream
	// sessions is how many it has.
	sessions int
}

var subscribeDesc = &grpc.StreamDesc{StreamName: "Subscribe", ServerStreams: true}

// subscribe opens a stream on the sessions, from now on, and waits until it stands.
func subscribe(ctx context.Context, conn grpc.ClientConnInterface, sessions ...string) (*subscriber, error) {
	s, err := openStream(ctx, conn, bridgev1.StreamStart_STREAM_START_END, sessions...)
	if err != nil {
		return nil, err
	}
	// Attached and CaughtUp of each.
	for range 2 * len(sessions) {
		if err := s.stream.RecvMsg(new(counter)); err != nil {
			return nil, fmt.Errorf("subscribe: %w", err)
		}
	}
	return s, nil
}

// openStream opens a stream on the sessions, and waits for nothing.
func openStream(
	ctx context.Context, conn grpc.ClientConnInterface, start bridgev1.StreamStart, sessions ...string,
) (*subscriber, error) {
	stream, err := conn.NewStream(ctx, subscribeDesc, bridgev1.EventService_Subscribe_FullMethodName,
		grpc.ForceCodecV2(countingCodec{}))
	if err != nil {
		return nil, err
	}
	r := &bridgev1.SubscribeRequest{}
	for _, id := range sessions {
		r.Sessions = append(r.Sessions, &bridgev1.SessionCursor{SessionId: id, Start: start,
			Filter: &bridgev1.EventFilter{IncludeLarge: true}})
	}
	return &subscriber{stream: stream, sessions: len(sessions)}, errors.Join(stream.SendMsg(r), stream.CloseSend())
}

// await returns the number of events up to the end of a blast, in all sessions.
func (s *subscriber) await() (total int, err error) {
	var c counter
	for ends := 0; ends < s.sessions; ends += c.ends {
		switch err := s.stream.RecvMsg(&c); {
		case errors.Is(err, io.EOF):
			return total, io.ErrUnexpectedEOF
		case err != nil:
			return total, err
		}
		total += c.events
	}
	return total, nil
}
