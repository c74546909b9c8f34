package forward

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

const (
	// openTimeout is how long a watch waits for replicas that do not answer before it begins without them.
	openTimeout = connectTimeout
	// checkEvery is the interval at which a watch looks for replicas that it does not include, and the shortest time
	// between two resets.
	checkEvery = time.Second
	// drainPause is how long a watch leaves out a replica that has ended its stream with OK, because it drains.
	drainPause = 30 * time.Second
)

// signal is what a change on the stream of one replica means for the merged stream.
type signal int

const (
	_ signal = iota // a change, which is for the client
	// heartbeat shows that the stream is alive. Only this replica's heartbeats are for the client.
	heartbeat
	// caughtUp ends the state at the start. The client gets one, after all replicas have sent theirs.
	caughtUp
	// reset reports skipped changes. All replicas then start again, because the client forgets all of them.
	reset
)

// head is the field of a reply that occurs first, 0 if the reply is empty, and its value if that is a number.
type head struct {
	field protowire.Number
	value uint64
}

// watchable is a method that watches the sessions of all replicas.
type watchable struct {
	// signals has the replies that are no change, by their heads.
	signals map[head]signal
	// begin is each replica's first message, after which no event is missed; the client gets one for all. reset and
	// caughtUp are the messages for the client. All are nil if the method has none.
	begin, reset, caughtUp proto.Message
}

// watchables are the methods that watch, by name.
var watchables = map[string]*watchable{
	bridgev1.EventService_WatchSessions_FullMethodName: {
		signals: map[head]signal{
			{1, uint64(bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT)}: heartbeat,
			{1, uint64(bridgev1.SessionChange_SESSION_CHANGE_RESET)}:     reset,
		},
		reset: &bridgev1.WatchSessionsResponse{Change: bridgev1.SessionChange_SESSION_CHANGE_RESET},
	},
	bridgev1.CallbackService_WatchPending_FullMethodName: {
		signals: map[head]signal{{field: 3}: caughtUp, {field: 4}: reset, {field: 5}: heartbeat},
		reset: &bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_Reset_{
			Reset_: &bridgev1.PendingReset{}}},
		caughtUp: &bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_CaughtUp{
			CaughtUp: &bridgev1.PendingCaughtUp{}}},
	},
	bridgev1.RuntimeService_WatchTelemetry_FullMethodName: {
		signals: map[head]signal{{}: heartbeat}, begin: &bridgev1.WatchTelemetryResponse{},
	},
	bridgev1.RuntimeService_WatchHostEvents_FullMethodName: {
		signals: map[head]signal{{}: heartbeat}, begin: &bridgev1.WatchHostEventsResponse{},
	},
}

// headBytes is enough for the tag and the number of a message's first field.
const headBytes = 20

// of returns the signal of a message, which is decoded or not.
func (w *watchable) of(m any) signal { return w.signals[headOf(m)] }

func headOf(m any) head {
	switch m := m.(type) {
	case *codec.Raw:
		bytes := m.Head(make([]byte, headBytes))
		field, kind, n := protowire.ConsumeTag(bytes)
		if n > 0 && kind == protowire.VarintType {
			value, _ := protowire.ConsumeVarint(bytes[n:])
			return head{field, value}
		}
		return head{field: field}
	case proto.Message:
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			switch f := fields.Get(i); {
			case !m.ProtoReflect().Has(f):
			case f.Kind() == protoreflect.EnumKind:
				return head{f.Number(), uint64(m.ProtoReflect().Get(f).Enum())} //nolint:gosec // not negative
			default:
				return head{field: f.Number()}
			}
		}
	}
	return head{}
}

// watch is a stream that merges the changes of all replicas. It runs in rounds. Each round watches all replicas from
// the start; from the second one on the client first gets a reset, if the method has one. A round ends when a replica
// has skipped changes, or when the replicas to watch are others than at its begin.
type watch struct {
	*watchable
	forwarder *Forwarder
	stream    grpc.ServerStream
	info      *grpc.StreamServerInfo
	request   proto.Message
	local     func(grpc.ServerStream) error
}

// errAgain ends a round for another one.
var errAgain = errors.New("the watch starts again")

// errOwn is the end of this replica's stream, which ends the merged stream.
type errOwn struct{ error }

// run serves the stream.
func (w *watch) run() error {
	ctx := w.stream.Context()
	nameAll(ctx, w.forwarder.replicas())
	for first := true; ; first = false {
		err := w.round(ctx, first)
		own, ended := errors.AsType[errOwn](err)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case ended:
			return own.error
		case !errors.Is(err, errAgain):
			return err
		case !wait(ctx, checkEvery):
			return ctx.Err()
		}
	}
}

// round watches all replicas until it has to start again.
func (w *watch) round(ctx context.Context, first bool) error {
	if !first && w.reset != nil {
		if err := w.stream.SendMsg(w.reset); err != nil {
			return err
		}
	}
	peers := w.forwarder.locator.Peers()
	r := &round{watch: w, parts: newParts(ctx), opened: make(chan struct{}), lost: map[Owner]time.Time{}}
	r.opening, r.catching = len(peers)+1, len(peers)+1
	r.parts.run(r.openLate)
	r.parts.run(func(ctx context.Context) error {
		return errOwn{w.local(&replay{ServerStream: r.part(ctx, true), first: w.request})}
	})
	for _, peer := range peers {
		r.parts.run(func(ctx context.Context) error { return r.follow(ctx, peer) })
	}
	r.parts.run(func(ctx context.Context) error { return r.check(ctx, peers) })
	return r.parts.wait()
}

// round is one round of a watch.
type round struct {
	*watch
	parts *parts
	// opened is closed when all replicas watch that answer.
	opened chan struct{}
	once   sync.Once

	// mu guards sending, and the following fields.
	mu sync.Mutex
	// opening and catching count the replicas that have not registered their watch, and not sent the state at the
	// start.
	opening, catching int
	// lost are the replicas whose stream has ended, with the time from which they may be watched again.
	lost map[Owner]time.Time
}

// open lets the parts send.
func (r *round) open() {
	r.once.Do(func() {
		_ = r.stream.SendHeader(nil) // it was sent if this is not the first round
		if r.begin != nil {
			_ = r.stream.SendMsg(r.begin) // the client's stream reports its error to the parts too
		}
		close(r.opened)
	})
}

// openLate opens the round if replicas do not answer.
func (r *round) openLate(ctx context.Context) error {
	timer := time.NewTimer(openTimeout)
	defer timer.Stop()
	select {
	case <-timer.C:
		r.open()
	case <-r.opened:
	case <-ctx.Done():
	}
	return nil
}

// registered counts a replica that watches, or has ended.
func (r *round) registered() {
	r.mu.Lock()
	r.opening--
	all := r.opening == 0
	r.mu.Unlock()
	if all {
		r.open()
	}
}

// follow passes the changes of another replica. It returns an error only if the merged stream has to end.
func (r *round) follow(ctx context.Context, peer Owner) error {
	part := r.part(ctx, false)
	_, err := r.forwarder.relay(part, r.info, r.request, peer, "")
	part.end()
	if errors.Is(err, errClient) {
		return err
	}
	again := time.Now()
	if err == nil {
		again = again.Add(drainPause)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost[peer] = again
	return nil
}

// check ends the round when the replicas to watch have changed, or a lost one answers.
func (r *round) check(ctx context.Context, peers []Owner) error {
	for wait(ctx, checkEvery) {
		if !sameReplicas(peers, r.forwarder.locator.Peers()) {
			return errAgain
		}
		r.mu.Lock()
		lost := maps.Clone(r.lost)
		r.mu.Unlock()
		for peer, again := range lost {
			if time.Now().After(again) && r.answers(ctx, peer) {
				return errAgain
			}
		}
	}
	return nil
}

// answers reports whether a replica can be watched.
func (r *round) answers(ctx context.Context, peer Owner) bool {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	conn, err := r.forwarder.peers.get(peer.Address)
	if err != nil {
		return false
	}
	defer conn.done()
	stream, err := conn.NewStream(metadata.NewOutgoingContext(ctx, outgoing(ctx)),
		&grpc.StreamDesc{ServerStreams: true}, r.info.FullMethod)
	if err != nil || stream.SendMsg(r.request) != nil {
		return false
	}
	header, err := stream.Header()
	return err == nil && header != nil
}

// sameReplicas compares replicas without regard to their order.
func sameReplicas(a, b []Owner) bool {
	has := map[Owner]bool{}
	for _, o := range a {
		has[o] = true
	}
	return len(a) == len(b) && !slices.ContainsFunc(b, func(o Owner) bool { return !has[o] })
}

// part returns the stream of one replica in the round.
func (r *round) part(ctx context.Context, own bool) *watchPart {
	return &watchPart{partStream: partStream{r.stream, ctx}, round: r, own: own}
}

// watchPart is the stream of one replica in a round.
type watchPart struct {
	partStream
	round *round
	own   bool
	// begun reports that the method's first message was sent for the replica. The round's mu guards it.
	begun bool
	once  sync.Once
	// caughtUp reports that the replica has sent its state. The round's mu guards it.
	caughtUp bool
}

// SendHeader implements grpc.ServerStream: the replica watches.
func (p *watchPart) SendHeader(metadata.MD) error {
	p.once.Do(p.round.registered)
	return nil
}

// end counts the replica as one that sends nothing more.
func (p *watchPart) end() {
	p.once.Do(p.round.registered)
	p.round.mu.Lock()
	defer p.round.mu.Unlock()
	_ = p.catchUp() // the client's stream reports its error to the other parts too
}

// catchUp counts the replica as one that has sent its state. The caller holds the round's mu.
func (p *watchPart) catchUp() error {
	if p.caughtUp {
		return nil
	}
	p.caughtUp = true
	p.round.catching--
	if p.round.catching > 0 || p.round.watch.caughtUp == nil || p.ctx.Err() != nil {
		return nil
	}
	return p.ServerStream.SendMsg(p.round.watch.caughtUp)
}

// SendMsg implements grpc.ServerStream.
func (p *watchPart) SendMsg(m any) error {
	p.once.Do(p.round.registered)
	select {
	case <-p.round.opened:
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
	kind := p.round.of(m)
	if kind == reset {
		p.round.parts.end(errAgain, nil)
		return nil
	}
	p.round.mu.Lock()
	defer p.round.mu.Unlock()
	switch {
	case p.ctx.Err() != nil:
		return p.ctx.Err()
	case kind == caughtUp:
		return p.catchUp()
	case kind == heartbeat && !p.own:
		return nil
	case p.own && p.round.begin != nil && !p.begun:
		p.begun = true // as r.begin, which is the same
		return nil
	}
	return p.ServerStream.SendMsg(m)
}
