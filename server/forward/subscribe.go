package forward

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// subscription is a call of Subscribe for sessions of several replicas: a part for each replica. Their frames
// interleave, like the frames of sessions. It ends with OK when all parts have, and with the first error of a part.
type subscription struct {
	forwarder *Forwarder
	stream    *shared
	info      *grpc.StreamServerInfo
	request   *bridgev1.SubscribeRequest
	local     func(grpc.ServerStream) error
	parts     *parts
	// last is the end of patience: no owner is looked for again afterwards.
	last time.Time
}

// subscribe serves Subscribe for several sessions.
func (f *Forwarder) subscribe(again *replay, info *grpc.StreamServerInfo, r *bridgev1.SubscribeRequest,
	local func(grpc.ServerStream) error,
) error {
	ctx := again.Context()
	groups, _ := f.group(ctx, f.locator.Locate, r.GetSessions())
	if len(groups) == 1 && len(groups[Owner{Here: true}]) > 0 {
		f.name(ctx, "")
		return local(again)
	}
	if err := again.SetHeader(f.namesOf(groups)); err != nil {
		return err
	}
	s := &subscription{forwarder: f, info: info, request: r, local: local, parts: newParts(ctx),
		last: time.Now().Add(patience)}
	s.stream = &shared{partStream: partStream{again.ServerStream, s.parts.ctx}}
	s.start(groups, nil, 1, firstPause)
	err := s.parts.wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// group returns the sessions of each owner: Owner{Here: true} for this replica, and the zero Owner for the sessions
// whose owner is unknown because of err.
func (f *Forwarder) group(ctx context.Context, locate locating, cursors []*bridgev1.SessionCursor) (
	groups map[Owner][]*bridgev1.SessionCursor, err error,
) {
	groups = map[Owner][]*bridgev1.SessionCursor{}
	for _, c := range cursors {
		owner, unknown := f.owner(ctx, locate, target{session: c.GetSessionId()})
		switch {
		case unknown != nil:
			owner, err = Owner{}, unknown
		case owner.Here:
			owner = Owner{Here: true}
		}
		groups[owner] = append(groups[owner], c)
	}
	return groups, err
}

// namesOf returns the header with the owners of sessions, except the owners of shared sessions.
func (f *Forwarder) namesOf(groups map[Owner][]*bridgev1.SessionCursor) metadata.MD {
	md := metadata.MD{}
	for owner, cursors := range groups {
		switch {
		case slices.ContainsFunc(cursors, func(c *bridgev1.SessionCursor) bool { return foreign(c.GetSessionId()) }):
		case owner.Here:
			md.Append(HeaderOwner, f.node)
		case owner.Node != "":
			md.Append(HeaderOwner, owner.Node)
		}
	}
	return md
}

// start serves each owner's sessions. unknown is why the owner of some is unknown.
func (s *subscription) start(groups map[Owner][]*bridgev1.SessionCursor, unknown error, attempt int,
	pause time.Duration,
) {
	for owner, cursors := range groups {
		s.parts.run(func(ctx context.Context) error {
			err, taken := unknown, false
			if owner != (Owner{}) {
				taken, err = s.serve(owner, cursors)
			}
			if taken || attempt == maxAttempts || time.Now().After(s.last) || !wait(ctx, pause) {
				return err
			}
			again, unknown := s.forwarder.group(ctx, s.forwarder.locator.Verify, cursors)
			s.start(again, unknown, attempt+1, 2*pause)
			return nil
		})
	}
}

// serve serves the sessions of one owner. taken reports that the owner has not refused them.
func (s *subscription) serve(owner Owner, cursors []*bridgev1.SessionCursor) (taken bool, err error) {
	request := &bridgev1.SubscribeRequest{Sessions: cursors, Options: s.request.GetOptions(),
		Callbacks: s.request.GetCallbacks()}
	request.ProtoReflect().SetUnknown(s.request.ProtoReflect().GetUnknown())
	if owner.Here {
		return true, s.local(&replay{ServerStream: s.stream, first: request})
	}
	return s.forwarder.relay(s.stream, s.info, request, owner, cursors[0].GetSessionId())
}

// locating is Locator.Locate or Locator.Verify.
type locating func(_ context.Context, tenant, session string) (Owner, error)

// shared is a stream on which several goroutines send.
type shared struct {
	partStream
	mu sync.Mutex
}

// SendMsg implements grpc.ServerStream.
func (s *shared) SendMsg(m any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ServerStream.SendMsg(m)
}
