package shim

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The field numbers on the way to an event; a test compares them with the descriptors.
const (
	fieldStream       protowire.Number = 2 // AttachResponse.stream
	fieldEvents       protowire.Number = 3 // SubscribeResponse.events
	fieldBatch        protowire.Number = 1 // EventBatch.events
	fieldPosition     protowire.Number = 1 // Event.position
	fieldEvent        protowire.Number = 2 // Event.event
	fieldCause        protowire.Number = 4 // Event.cause
	fieldTruncated    protowire.Number = 5 // Event.truncated
	fieldType         protowire.Number = 1 // SessionEvent.type
	fieldUnrecognized protowire.Number = 1001
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// fields calls visit for each field of length-delimited type, and with nil for others.
func fields(b []byte, visit func(number protowire.Number, value []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(number, kind, b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(b)
			if value == nil {
				value = []byte{}
			}
		}
		if err := visit(number, value); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// frame takes a frame of the stream. over is the end of the participation.
func (p *participant) frame(stream grpc.ClientStream, b []byte) (over bool, err error) {
	events, err := eventsOf(b)
	if err != nil {
		return false, err
	}
	if events != nil {
		return false, p.arrived(events)
	}
	r := &bridgev1.AttachResponse{}
	if err := proto.Unmarshal(b, r); err != nil {
		return false, err
	}
	switch f := r.GetFrame().(type) {
	case *bridgev1.AttachResponse_Opening:
		p.inPlace(stream, f.Opening.GetParticipantId(), f.Opening.GetParticipantToken())
	case *bridgev1.AttachResponse_Started:
		p.inPlace(stream, f.Started.GetParticipantId(), f.Started.GetParticipantToken())
		return false, p.begun(f.Started)
	case *bridgev1.AttachResponse_Done:
		p.commands.answer(f.Done.GetCommandId(), commandReply{done: f.Done})
	case *bridgev1.AttachResponse_Failed:
		p.failed(f.Failed)
	case *bridgev1.AttachResponse_Stream:
		return p.streamed(f.Stream)
	}
	return false, nil
}

// eventsOf finds the batch of events in a frame, nil if it is another.
func eventsOf(b []byte) (batch []byte, err error) {
	err = fields(b, func(number protowire.Number, stream []byte) error {
		if number != fieldStream || stream == nil {
			return nil
		}
		return fields(stream, func(number protowire.Number, value []byte) error {
			if number == fieldEvents && value != nil {
				batch = value
			}
			return nil
		})
	})
	return batch, err
}

// maxHeld bounds the bytes of events that are held back until the answer to a create or resume is known; above it
// they are sent.
const maxHeld = 8 << 20

// arrived writes a batch of events, or keeps it until the answer to the create or resume is
// known.
func (p *participant) arrived(batch []byte) error {
	p.mu.Lock()
	size := len(batch)
	for _, b := range p.held {
		size += len(b)
	}
	held := append(p.held, batch)
	p.held = nil
	if !p.started && size <= maxHeld {
		p.held, held = held, nil
	}
	p.mu.Unlock()
	for _, b := range held {
		if err := arrivals(b, p.event); err != nil {
			return err
		}
	}
	return nil
}

// unhold writes the events before the answer, waits until that is written, and then writes
// the rest.
func (p *participant) unhold(answer position.Position) error {
	p.mu.Lock()
	held := p.held
	p.held = nil
	p.mu.Unlock()
	answered := false
	for _, batch := range held {
		err := arrivals(batch, func(a arrival) error {
			if !answered && answer.Before(a.at) {
				answered = true
				p.openUp()
			}
			return p.event(a)
		})
		if err != nil {
			return err
		}
	}
	if !answered {
		p.openUp()
	}
	return nil
}

// openUp has the create or resume answered, and waits until that is done.
func (p *participant) openUp() {
	p.mu.Lock()
	p.started = true
	p.signal()
	p.mu.Unlock()
	p.until(p.life, func() bool { return p.released || p.left })
}

// arrival is an event of the stream, with what is read of it before it becomes JSON.
type arrival struct {
	at    position.Position
	event []byte // a SessionEvent
	kind  string
	raw   bool // no message holds its payload
	// bridges says that it is what the bridge did for itself, truncated that its message was cut.
	bridges, truncated bool
}

func arrivalOf(b []byte) (a arrival, err error) {
	err = fields(b, func(number protowire.Number, value []byte) error {
		switch number {
		case fieldPosition:
			m := &bridgev1.Position{}
			err := proto.Unmarshal(value, m)
			a.at = positionOf(m)
			return err
		case fieldEvent:
			a.event = value
			return fields(value, func(number protowire.Number, value []byte) error {
				switch number {
				case fieldType:
					a.kind = string(value)
				case fieldUnrecognized:
					a.raw = true
				}
				return nil
			})
		case fieldCause:
			a.bridges = true
		case fieldTruncated:
			a.truncated = true
		}
		return nil
	})
	return a, err
}

// arrivals calls visit for each event of a batch.
func arrivals(batch []byte, visit func(arrival) error) error {
	return fields(batch, func(number protowire.Number, value []byte) error {
		if number != fieldBatch || value == nil {
			return nil
		}
		a, err := arrivalOf(value)
		if err != nil {
			return err
		}
		return visit(a)
	})
}

// event writes one event.
func (p *participant) event(a arrival) error {
	if a.bridges {
		p.reach(a.at)
		return nil
	}
	text, err := p.eventJSON(a)
	if err != nil {
		return err
	}
	p.farewell = nil // it went on after that
	// The CLI says session.shutdown, too, when its process or the bridge ends, and the session goes on in the next: then
	// it is none of the program's affairs.
	if a.kind == "session.shutdown" {
		if !p.ending() {
			p.farewell = text
			p.reach(a.at)
			return nil
		}
		p.conn.sessions.ended(p)
	}
	if err := p.tell("session.event", text); err != nil {
		return err
	}
	p.reach(a.at)
	return nil
}

// ending reports whether the program has asked for the session's end.
func (p *participant) ending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left || p.shutting
}

// eventJSON makes the parameters of session.event, and counts the event by its type.
func (p *participant) eventJSON(a arrival) ([]byte, error) {
	id, err := json.Marshal(p.id)
	if err != nil {
		return nil, err
	}
	if a.raw {
		p.conn.server.counter.raw("session.event:" + a.kind)
	} else {
		p.conn.server.counter.typed("session.event:" + a.kind)
	}
	text := append(append([]byte(`{"sessionId":`), id...), `,"event":`...)
	if a.truncated {
		whole, err := p.readEvent(a.at)
		if err != nil {
			return nil, err
		}
		text = append(text, whole...)
	} else if text, err = p.conn.server.tables.event.AppendJSON(text, a.event, translate.JSONOptions{}); err != nil {
		return nil, err
	}
	return append(text, '}'), nil
}

// readEvent reads an event whose message was cut.
func (p *participant) readEvent(at position.Position) (text []byte, err error) {
	ctx, cancel := context.WithCancel(p.life)
	defer cancel()
	client := bridgev1.NewSessionServiceClient(p.conn.server.config.Bridge)
	stream, err := client.ReadEvent(ctx, &bridgev1.ReadEventRequest{SessionId: p.id, Position: protoOf(at)})
	err = each(stream, err, func(r *bridgev1.ReadEventResponse) error {
		text = append(text, r.GetJsonChunk()...)
		return nil
	})
	if !isEOF(err) {
		return nil, err
	}
	return text, nil
}

// inPlace notes that the stream is open for frames, and the token that gives its place back.
func (p *participant) inPlace(stream grpc.ClientStream, id, token string) {
	p.mu.Lock()
	p.stream, p.start = stream, proto.CloneOf(p.start)
	p.start.ParticipantToken, p.participantID = token, id
	p.signal()
	left := p.left
	p.mu.Unlock()
	if left { // before it was there
		p.leave(false)
	}
}

// begun notes what the CLI answered to the create or resume. From now on the stream is
// opened again by joining.
func (p *participant) begun(started *bridgev1.AttachStarted) (err error) {
	var result []byte
	switch r := started.GetResult().(type) {
	case *bridgev1.AttachStarted_CreateResult:
		result, err = p.conn.server.tables.write(r.CreateResult)
	case *bridgev1.AttachStarted_ResumeResult:
		result, err = p.conn.server.tables.write(r.ResumeResult)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.start.Session = &bridgev1.AttachStart_JoinSessionId{JoinSessionId: p.id}
	again := p.started
	if !again {
		p.result = result
	}
	p.mu.Unlock()
	if again {
		return nil
	}
	return p.unhold(positionOf(started.GetPosition()))
}

// failed reports a failed command to its caller.
func (p *participant) failed(f *bridgev1.AttachFailed) {
	if id := f.GetCommandId(); id != "" {
		p.commands.answer(id, commandReply{err: failedCommand(f)})
		return
	}
	p.conn.log.Info("the bridge did not accept an answer", "session_id", p.id, "callback_id", f.GetCallbackId(),
		"reason", f.GetFailure().GetReason().String())
}

// streamed takes a frame that is not of events.
func (p *participant) streamed(r *bridgev1.SubscribeResponse) (over bool, err error) {
	switch f := r.GetFrame().(type) {
	case *bridgev1.SubscribeResponse_Started:
		p.mu.Lock()
		me := p.participantID
		p.mu.Unlock()
		for _, pending := range f.Started.GetPendingCallbacks() {
			p.questions.pending(pending, me)
		}
	case *bridgev1.SubscribeResponse_CallbackRequested:
		if f.CallbackRequested.GetOffered() {
			p.questions.ask(f.CallbackRequested.GetCallback())
		}
	case *bridgev1.SubscribeResponse_CallbackResolved:
		p.questions.settle(f.CallbackResolved.GetCallbackId())
	case *bridgev1.SubscribeResponse_Gap:
		p.conn.log.Warn("events were lost", "session_id", p.id, "reason", f.Gap.GetReason().String())
	case *bridgev1.SubscribeResponse_Closed:
		if f.Closed.GetReason() == bridgev1.CloseReason_CLOSE_REASON_DRAINING {
			return false, errDraining
		}
		over = true
		if p.farewell != nil {
			p.conn.sessions.ended(p)
			err = p.tell("session.event", p.farewell)
		}
	}
	p.reach(positionOf(r.GetResumeAfter()))
	return over, err
}
