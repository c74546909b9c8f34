package shim

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// methodSend is the method that sends a prompt. It goes over the participant's stream: a separate call
// would cost the bridge and the shim more.
const methodSend = "session.send"

// The field numbers of a command; a test compares them with the descriptors.
const (
	fieldCommand   protowire.Number = 3 // AttachRequest.command
	fieldCommandID protowire.Number = 1 // AttachCommand.command_id
	fieldRequestID protowire.Number = 6 // AttachCommand.request_id
	fieldExactSend protowire.Number = 7 // AttachCommand.exact_send
)

// maxCommand bounds the prompts that go over the stream. A message that exceeds the bridge's limit ends its stream,
// while it only fails a call.
const maxCommand = 256 << 10

// plainSends are the fields of SessionServiceSendRequest that go over the stream: none of them is subject to the
// bridge's policy, whose refusal would end the stream, and none makes the bridge wait for the turn.
var plainSends = map[protowire.Number]bool{
	1: true, 2: true, 3: true, 5: true, 6: true, 7: true, 8: true, 10: true, 11: true, 12: true, 13: true, 15: true,
}

// plain reports whether a request of session.send, in wire form, may go over the stream.
func plain(request []byte) bool {
	if len(request) > maxCommand {
		return false
	}
	all := true
	err := fields(request, func(number protowire.Number, _ []byte) error {
		all = all && plainSends[number]
		return nil
	})
	return all && err == nil
}

// send sends a prompt over the stream of the connection's participant. With errInterrupted a call with the same
// request id must send it: there is no stream, it broke, or the bridge asks to try again.
func (c *conn) send(ctx context.Context, id string, request []byte, requestID string) (json.RawMessage, error) {
	p := c.sessions.participant(id)
	if p == nil || !plain(request) {
		return nil, errInterrupted
	}
	done, err := p.sendExactly(ctx, request, requestID)
	if err != nil && (passes(err) || c.returning(id, err)) {
		return nil, errInterrupted
	}
	if err != nil {
		return nil, err
	}
	c.server.counter.typed(methodSend)
	result, err := c.server.tables.write(done.GetSendResult())
	if err != nil {
		return nil, fmt.Errorf("reading the bridge's reply: %w", err)
	}
	if at := done.GetPosition(); at != nil {
		p.await(ctx, positionOf(at))
	}
	return result, nil
}

// sendExactly sends the command exact_send, if the stream is open, and waits for its reply.
func (p *participant) sendExactly(
	ctx context.Context, request []byte, requestID string,
) (*bridgev1.AttachDone, error) {
	id, reply, err := p.commands.add()
	if err != nil {
		return nil, errInterrupted
	}
	defer p.commands.drop(id)
	p.mu.Lock()
	stream, started := p.stream, p.started // if it breaks from now on, the command is interrupted
	p.mu.Unlock()
	if stream == nil || !started {
		return nil, errInterrupted
	}
	if p.sendOn(stream, &wire{sendFrame(id, request, requestID)}) != nil {
		return nil, errInterrupted
	}
	select {
	case r := <-reply:
		if r.err == errGone {
			r.err = errInterrupted
		}
		return r.done, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// sendFrame is an AttachRequest with the command exact_send.
func sendFrame(id string, request []byte, requestID string) []byte {
	field := func(to []byte, number protowire.Number, value string) []byte {
		return protowire.AppendString(protowire.AppendTag(to, number, protowire.BytesType), value)
	}
	command := make([]byte, 0, len(request)+len(id)+len(requestID)+16)
	command = field(command, fieldCommandID, id)
	command = protowire.AppendTag(command, fieldExactSend, protowire.BytesType)
	command = protowire.AppendBytes(command, request)
	command = field(command, fieldRequestID, requestID)
	frame := make([]byte, 0, len(command)+8)
	return protowire.AppendBytes(protowire.AppendTag(frame, fieldCommand, protowire.BytesType), command)
}
