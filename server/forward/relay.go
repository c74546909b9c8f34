package forward

import (
	"context"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/server/codec"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

// relayUnary relays a unary call. began reports that the session may have received it.
func (f *Forwarder) relayUnary(ctx context.Context, owner Owner, method string, request any, session string) (
	_ any, began bool, err error,
) {
	conn, err := f.peers.get(owner.Address)
	if err != nil {
		return nil, false, unreachable(session, "%v", err)
	}
	defer conn.done()
	stream, err := conn.NewStream(metadata.NewOutgoingContext(ctx, outgoing(ctx)), &grpc.StreamDesc{}, method)
	if err != nil {
		return nil, false, failed(ctx, owner, session, err)
	}
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, true, failed(ctx, owner, session, err)
	}
	reply := &codec.Raw{}
	err = stream.RecvMsg(reply)
	trailer := stream.Trailer()
	if refused(trailer, err) {
		return nil, false, grpcstatus.Convert(err).Err()
	}
	if header, hasHeader := stream.Header(); hasHeader == nil && (err == nil || !foreign(session)) {
		_ = grpc.SetHeader(ctx, named(header, owner)) // it fails only outside of a call
	}
	_ = grpc.SetTrailer(ctx, passed(trailer))
	if err != nil {
		return nil, true, failed(ctx, owner, session, err)
	}
	return reply, true, nil
}

// refused reports whether the receiver refused a call before it began.
func refused(trailer metadata.MD, err error) bool {
	return err != nil && len(trailer.Get(trailerRefused)) > 0 && grpcstatus.Code(err) == codes.Unavailable
}

// named returns the header for the client.
func named(header metadata.MD, owner Owner) metadata.MD {
	header = passed(header)
	header.Set(HeaderOwner, owner.Node)
	return header
}

// passed returns the metadata of a response without the connection's, and without the trailers that the entry replica
// derives from the status.
func passed(md metadata.MD) metadata.MD {
	out := make(metadata.MD, len(md)+1)
	for key, values := range md {
		switch {
		case key == "content-type", strings.HasPrefix(key, ":"), strings.HasPrefix(key, "grpc-"),
			key == status.TrailerReason, key == status.TrailerField, key == trailerRefused:
		default:
			out[key] = values
		}
	}
	return out
}
