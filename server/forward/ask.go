package forward

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// everywhere serves a call about the sessions of all replicas. known is false for other calls.
func (f *Forwarder) everywhere(ctx context.Context, method string, request any, local grpc.UnaryHandler) (
	reply any, known bool, err error,
) {
	ask := &asking{f, method, local}
	switch r := request.(type) {
	case *bridgev1.ListSessionsRequest:
		reply, err = ask.sessions(ctx, r)
	case *bridgev1.ListPendingRequest:
		reply, err = ask.pending(ctx, r)
	case *bridgev1.ListShareOffersRequest:
		reply, err = ask.offers(ctx, r)
	case *bridgev1.PruneSessionsRequest:
		reply, err = ask.prune(ctx, r)
	case *bridgev1.GetUsageRequest:
		reply, err = ask.usage(ctx, r)
	default:
		return nil, false, nil
	}
	return reply, true, err
}

// asking asks all replicas with one method.
type asking struct {
	forwarder *Forwarder
	method    string
	local     grpc.UnaryHandler
}

// of asks a replica. The reply of another one is decoded into reply.
func (a *asking) of(ctx context.Context, replica Owner, request, reply proto.Message) (proto.Message, error) {
	if replica.Here {
		here, err := a.local(ctx, request)
		if err != nil {
			return nil, err
		}
		return here.(proto.Message), nil // the handlers of these methods return messages
	}
	conn, err := a.forwarder.peers.get(replica.Address)
	if err != nil {
		return nil, unknown(replica)
	}
	defer conn.done()
	err = conn.Invoke(metadata.NewOutgoingContext(ctx, outgoing(ctx)), a.method, request, reply)
	switch {
	case err == nil:
		return reply, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case len(grpcstatus.Convert(err).Proto().GetDetails()) > 0:
		return nil, grpcstatus.Convert(err).Err()
	}
	return nil, unknown(replica)
}

// unknown is the error for a list that would lack the sessions of a replica.
func unknown(peer Owner) error {
	return fault.New(fault.SessionUnavailable, "the sessions of the replica %q are unknown at the moment: it does not "+
		"answer", peer.Node).WithRetry(retryAfter)
}

// alone returns the reply of this replica.
func (a *asking) alone(ctx context.Context, request proto.Message) (any, error) {
	a.forwarder.name(ctx, "")
	return a.local(ctx, request)
}

// replicas returns all replicas, this one first.
func (f *Forwarder) replicas() []Owner {
	return append([]Owner{{Node: f.node, Here: true}}, f.locator.Peers()...)
}

// nameAll sets the header that names the replicas of a call.
func nameAll(ctx context.Context, replicas []Owner) {
	md := metadata.MD{}
	for _, replica := range replicas {
		md.Append(HeaderOwner, replica.Node)
	}
	_ = grpc.SetHeader(ctx, md) // it fails only outside of a call
}
