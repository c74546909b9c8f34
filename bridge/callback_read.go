package bridge

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// inlineBytes is how much JSON of requests goes into one frame or list at most: gRPC's
// clients take messages of 4 MiB unless told otherwise.
const inlineBytes = 1 << 20

// callbackFrame is a pending callback as it goes into a frame.
func (b *Bridge) callbackFrame(s *session.Session, name string, p *callback.Pending, fidelity translate.Fidelity) *bridgev1.Callback {
	if len(p.Params) > inlineBytes {
		return b.withoutRequest(s, name, p, fidelity)
	}
	return b.callback(s, name, p, fidelity)
}

// withoutRequest leaves out what is too long.
func (b *Bridge) withoutRequest(s *session.Session, name string, p *callback.Pending, fidelity translate.Fidelity) *bridgev1.Callback {
	c := b.callback(s, name, p, fidelity)
	size := proto.Size(c)
	c.Request, c.WholeBytes = nil, int64(size)
	return c
}

// ReadCallback reads a pending callback with its request.
func (b *Bridge) ReadCallback(ctx context.Context, r *bridgev1.ReadCallbackRequest, send func(*bridgev1.ReadCallbackResponse) error) error {
	s, err := b.asking(ctx, r.GetSessionId())
	if err != nil {
		return err
	}
	p, err := pendingOf(ctx, s, r.GetCallbackId())
	if err != nil {
		return err
	}
	if err := fields.Known(r.GetFidelity(), "fidelity"); err != nil {
		return err
	}
	fidelity := translate.Tidy
	if r.GetFidelity() == bridgev1.Fidelity_FIDELITY_EXACT {
		fidelity = translate.Exact
	}
	rest, err := proto.Marshal(b.callback(s, nameOf(ctx, s), p, fidelity))
	if err != nil {
		return fault.Wrap(err, fault.Internal, "callback %q", p.ID)
	}
	for total := int64(len(rest)); len(rest) > 0; total = 0 {
		n := min(len(rest), chunkBytes)
		if err := send(&bridgev1.ReadCallbackResponse{Chunk: rest[:n], TotalBytes: total}); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}
