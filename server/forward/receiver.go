package forward

import (
	"cmp"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
)

// Receiver serves the calls that other replicas relay to this one. It is safe for concurrent use.
type Receiver struct {
	node    string
	locator Locator
}

// NewReceiver returns a Receiver.
func NewReceiver(c *Config) *Receiver { return &Receiver{c.Node, c.Locator} }

// Unary serves a unary call by local if this replica has its session.
func (r *Receiver) Unary(ctx context.Context, _ string, request any, local grpc.UnaryHandler) (any, error) {
	if err := r.check(ctx, request); err != nil {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(trailerRefused, "1"))
		return nil, err
	}
	reply, err := local(ctx, request)
	if session := cmp.Or(SessionsOf(request)...); left(ctx, r.locator, session, err) {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(trailerRefused, "1"))
		return nil, notOwner(r.node, session)
	}
	return reply, err
}

// Stream serves a stream by local if this replica has its sessions. A client stream gets its header at once, because
// the entry replica sends the second message only then.
func (r *Receiver) Stream(stream grpc.ServerStream, info *grpc.StreamServerInfo,
	local func(grpc.ServerStream) error,
) error {
	again := receiveFirst(stream, info.FullMethod)
	if again.err == nil {
		if err := r.check(stream.Context(), again.first); err != nil {
			stream.SetTrailer(metadata.Pairs(trailerRefused, "1"))
			return err
		}
		if info.IsClientStream {
			if err := stream.SendHeader(nil); err != nil {
				return err
			}
		}
	}
	session := cmp.Or(SessionsOf(again.first)...)
	err := local(again)
	if left(stream.Context(), r.locator, session, err) {
		return notOwner(r.node, session)
	}
	return err
}

// check refuses sessions that another replica has. A session that no replica has is claimed: the entry replica may have
// chosen this one for it.
func (r *Receiver) check(ctx context.Context, request any) error {
	tenant := caller.From(ctx).Tenant
	for _, session := range SessionsOf(request) {
		owner, err := r.locator.Locate(ctx, tenant, session)
		if err == nil && owner == (Owner{}) {
			owner, err = r.locator.Verify(ctx, tenant, session)
		}
		if err == nil && owner == (Owner{}) {
			owner.Here, err = true, r.locator.Claim(ctx, tenant, session)
		}
		if err != nil || !owner.Here {
			return notOwner(r.node, session)
		}
	}
	return nil
}
