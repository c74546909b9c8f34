package wire

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// InlineBytes limits the JSON of requests in one frame or list: by default gRPC's clients
// accept messages of 4 MiB.
const InlineBytes = 1 << 20

// Callback converts a pending callback. One that its type cannot hold goes out raw. session is
// the caller's name of the session, offered are the participants that may answer.
func (c *Codec) Callback(p *callback.Pending, session string, offered []string, f translate.Fidelity) *bridgev1.Callback {
	out := &bridgev1.Callback{
		CallbackId: p.ID, SessionId: session, Kind: p.Kind.Type,
		CreateTime: timestamppb.New(p.Created), ParticipantIds: offered,
	}
	if p.Pos.Seq > 0 {
		out.Position = &bridgev1.Position{Epoch: p.Pos.Epoch, Seq: p.Pos.Seq}
	}
	if !p.Deadline.IsZero() {
		out.Deadline = timestamppb.New(p.Deadline)
	}
	trace := p.Span.Remote()
	out.Traceparent, out.Tracestate = trace.Traceparent, trace.Tracestate
	field := c.byMethod[p.Kind.Method]
	if field == nil {
		out.Request = raw(p)
		return out
	}
	request := out.ProtoReflect().NewField(field)
	if err := c.FromJSONAs(p.Params, request.Message().Interface(), f); err != nil {
		c.log.Warn("callback does not match its message type", "session_id", session, "method", p.Kind.Method, "error", err)
		out.Request = raw(p)
		return out
	}
	out.ProtoReflect().Set(field, request)
	return out
}

func raw(p *callback.Pending) *bridgev1.Callback_Raw {
	return &bridgev1.Callback_Raw{Raw: &bridgev1.RawCallback{Method: p.Kind.Method, ParamsJson: string(p.Params)}}
}

// CallbackWithin is Callback without the request if that has more than room bytes of JSON. TotalBytes is then the size
// of the message with the request. left is the room for other callbacks.
func (c *Codec) CallbackWithin(
	room int, p *callback.Pending, session string, offered []string, f translate.Fidelity,
) (out *bridgev1.Callback, left int) {
	out = c.Callback(p, session, offered, f)
	if len(p.Params) > room {
		size := proto.Size(out)
		out.Request, out.TotalBytes = nil, int64(size)
		return out, room
	}
	return out, room - len(p.Params)
}
