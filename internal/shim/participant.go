package shim

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// participant is a connection's place in a session: an Attach stream, opened again where
// it breaks.
type participant struct {
	conn *conn
	id   string
	life context.Context
	end  context.CancelFunc
	// config and profile are what the program said of the session.
	config  *cliv1.SessionConfig
	profile *bridgev1.RuntimeProfile
	// farewell is the session.shutdown that came last, if nothing came after it. It is of
	// the stream's goroutine.
	farewell []byte
	// commands are the program's, questions are the bridge's.
	commands  commands
	questions *questions

	mu      sync.Mutex
	start   *bridgev1.AttachStart // how it begins, or begins again
	at      position.Position     // what has been written
	moved   chan struct{}         // closed when at moves or the state changes, and made anew
	stream  grpc.ClientStream     // nil while there is none
	started bool
	result  json.RawMessage
	err     error // why it is over
	over    bool
	left    bool // it has said goodbye, or is to
	// shutting says that the program has called session.shutdown.
	shutting bool
	// detaching says that it has called session.detach.
	detaching atomic.Bool
	sending   sync.Mutex
	// held are the events that came before it was known where among them the answer to
	// the create or resume stands; released says that that has been written.
	held     [][]byte
	released bool
	// participantID is what the bridge calls it.
	participantID string
	done          chan struct{}
}

func newParticipant(c *conn, o *opening) *participant {
	p := &participant{
		conn: c, id: o.id, start: o.start, config: proto.CloneOf(o.config), profile: c.profile(),
		moved: make(chan struct{}), done: make(chan struct{}),
	}
	p.life, p.end = context.WithCancel(context.WithoutCancel(c.life))
	p.questions = &questions{conn: c, session: p.id, life: p.life, send: p.send, asked: map[string]context.CancelFunc{}}
	return p
}

// signal wakes the goroutines waiting for a change. The caller holds mu.
func (p *participant) signal() {
	close(p.moved)
	p.moved = make(chan struct{})
}

// until waits until cond holds, with mu held, or ctx ends.
func (p *participant) until(ctx context.Context, cond func() bool) bool {
	for {
		p.mu.Lock()
		ok, moved := cond(), p.moved
		p.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
}

// run keeps the stream until the participation is over.
func (p *participant) run() {
	defer close(p.done)
	defer p.end()
	var err error
	for retry := newRetry(p.conn.server.config.Grace); ; {
		var lived bool
		lived, err = p.follow()
		if err != nil && p.regain(err) {
			continue
		}
		if err == nil || !passes(err) || p.leaves() {
			break
		}
		if lived {
			retry = newRetry(p.conn.server.config.Grace)
		}
		p.conn.log.Info("stream broken", "session_id", p.id, "error", err)
		if !retry.wait(p.life) {
			break
		}
	}
	p.mu.Lock()
	p.over, p.err, p.stream = true, err, nil
	p.signal()
	p.mu.Unlock()
	p.commands.end()
	p.questions.end()
	p.questions.wait()
	p.conn.sessions.drop(p, nil)
}

// leaves reports whether the participant has said goodbye.
func (p *participant) leaves() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left
}

var attachDesc = &grpc.StreamDesc{StreamName: "Attach", ServerStreams: true, ClientStreams: true}

// follow opens a stream and follows it to its end. lived says that it was open; nil is the
// end of the participation.
func (p *participant) follow() (lived bool, err error) {
	ctx, cancel := context.WithCancel(p.life)
	defer cancel()
	defer p.commands.interrupt()
	stream, err := p.conn.server.config.Bridge.NewStream(ctx, attachDesc,
		bridgev1.CallbackService_Attach_FullMethodName,
		grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxReply), grpc.MaxCallSendMsgSize(maxReply))
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	start := proto.CloneOf(p.start)
	p.held = nil // they come again
	if p.at != (position.Position{}) {
		start.After = protoOf(p.at)
	}
	p.mu.Unlock()
	if err := stream.SendMsg(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: start}}); err != nil {
		return false, endOf(stream, err)
	}
	for {
		var w wire
		if err := stream.RecvMsg(&w); err != nil {
			return lived, p.closed(err)
		}
		over, err := p.frame(stream, w.bytes)
		if ended(err) && !over { // the program ended, not the bridge: the bridge is notified, and ends the stream
			if !p.leaves() {
				p.leave(false)
			}
			err = nil
		}
		if over || err != nil {
			return true, p.closed(err)
		}
		lived = true
	}
}

// endOf is why a stream that nothing can be sent on has ended.
func endOf(stream grpc.ClientStream, err error) error {
	var w wire
	if recv := stream.RecvMsg(&w); recv != nil {
		return recv
	}
	return err
}

// closed notes that a stream is over; nil is a good end.
func (p *participant) closed(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stream = nil
	p.signal()
	switch {
	case isEOF(err), status.Code(err) == codes.Aborted && reasonOf(status.Convert(err)) == "PARTICIPANT_REPLACED":
		return nil
	case p.left:
		return nil
	}
	return err
}

// opened waits for what became of the create or resume, and for the events before it.
func (p *participant) opened(ctx context.Context) (json.RawMessage, error) {
	if !p.until(ctx, func() bool { return p.started || p.over }) {
		p.leave(false)
		return nil, ctx.Err()
	}
	p.mu.Lock()
	result, err, started := p.result, p.err, p.started
	p.mu.Unlock()
	if !started {
		if err == nil {
			err = errGone
		}
		return nil, err
	}
	return result, nil
}

// release lets events go on: the answer to the create or resume has been written.
func (p *participant) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
	p.signal()
}

// await waits until everything up to a position has been written, if it comes at all.
func (p *participant) await(ctx context.Context, at position.Position) {
	p.mu.Lock()
	there := p.over || !p.at.Before(at)
	p.mu.Unlock()
	if there {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, heldBack)
	defer cancel()
	if !p.until(ctx, func() bool { return p.over || !p.at.Before(at) }) {
		p.conn.log.Warn("events that precede a reply did not arrive", "session_id", p.id)
	}
}

// gone reports whether the participation is over.
func (p *participant) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

// awaitDone waits until the stream has ended.
func (p *participant) awaitDone(ctx context.Context) {
	select {
	case <-p.done:
	case <-ctx.Done():
	}
}

// awaitEnd waits for the stream's end for some time, and ends it then.
func (p *participant) awaitEnd(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.end()
		<-p.done
	}
}

// leave says goodbye. A stream that is broken is not mended for that: its end says it too.
func (p *participant) leave(disconnect bool) {
	p.mu.Lock()
	p.left = true
	stream := p.stream
	p.mu.Unlock()
	if stream == nil {
		p.end()
		return
	}
	frame := &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Leave{Leave: &bridgev1.AttachLeave{Disconnect: disconnect}}}
	// The bridge ends the stream. Until then the CLI may still ask for something, such as a hook or a file to write,
	// so answers must be possible.
	if p.sendOn(stream, frame) != nil {
		p.end()
	}
}

// handOver has a new stream take the place: with what it takes over of what it does not say.
func (p *participant) handOver(o *opening) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o.start.ParticipantToken = p.start.GetParticipantToken()
	if !o.tools {
		o.start.Tools = p.start.GetTools()
	}
	if p.at != (position.Position{}) {
		o.start.After = protoOf(p.at)
	}
}

// change changes how the participant begins again.
func (p *participant) change(f func(*bridgev1.AttachStart)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start = proto.CloneOf(p.start)
	f(p.start)
}

// send sends a frame, when there is a stream.
func (p *participant) send(ctx context.Context, frame *bridgev1.AttachRequest) error {
	var stream grpc.ClientStream
	if !p.until(ctx, func() bool { stream = p.stream; return p.over || stream != nil }) || stream == nil {
		return errGone
	}
	return p.sendOn(stream, frame)
}

// sendOn sends a frame on a stream, on which one may be sent at a time.
func (p *participant) sendOn(stream grpc.ClientStream, frame any) error {
	p.sending.Lock()
	defer p.sending.Unlock()
	return stream.SendMsg(frame)
}

// command has the bridge carry out a command, which changes how the participant begins again.
func (p *participant) command(ctx context.Context, cmd *bridgev1.AttachCommand) error {
	id, reply, err := p.commands.add()
	if err != nil {
		return err
	}
	defer p.commands.drop(id)
	cmd.CommandId = id
	if err := p.send(ctx, &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Command{Command: cmd}}); err != nil {
		return err
	}
	select {
	case r := <-reply:
		if errors.Is(r.err, errInterrupted) { // the next stream's start has the change
			return nil
		}
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reach notes how far the stream has come.
func (p *participant) reach(at position.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.Before(at) {
		p.at = at
		p.signal()
	}
}

// tell writes a notification to the program; it waits for one that reads slowly.
func (p *participant) tell(method string, params []byte) error {
	err := p.conn.rpc.Tell(p.life, method, params)
	if errors.Is(err, rpcconn.ErrOutboundFull) {
		p.conn.log.Warn("event too large for the program's connection", "session_id", p.id, "bytes", len(params))
		return nil
	}
	return err
}
