package inbox

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// chunkBytes is the size of the pieces of ReadCallback.
const chunkBytes = 256 << 10

// ReadCallback reads a pending callback with its request.
func (svc *Service) ReadCallback(
	ctx context.Context, r *bridgev1.ReadCallbackRequest, send func(*bridgev1.ReadCallbackResponse) error,
) error {
	s, err := svc.sessions.Following(ctx, r.GetSessionId())
	if err != nil {
		return err
	}
	p, err := tenancy.Pending(ctx, s, r.GetCallbackId())
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
	offered := s.Callbacks().Registry().Offered(p)
	rest, err := proto.Marshal(svc.codec.Callback(p, tenancy.NameOf(ctx, s), offered, fidelity))
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
