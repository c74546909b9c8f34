package bridge

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/broadcast"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/watch"
)

// watchNotices sends the caller the notices of its tenant's runtimes about a session, or all,
// from now on, each with the number of notices dropped before it. It sends nil as a heartbeat:
// at first, and in pauses.
func (b *Bridge) watchNotices(
	ctx context.Context, n *broadcast.Hub[fleet.Notice], sessionID string, interval *durationpb.Duration,
	send func(n *fleet.Notice, lost int64) error,
) error {
	every, err := stream.Heartbeat(interval, "heartbeat_interval")
	if err != nil {
		return err
	}
	if sessionID != "" {
		if err := tenancy.CheckID(sessionID, "session_id"); err != nil {
			return err
		}
	}
	tenant := caller.From(ctx).Tenant
	w := n.Subscribe(func(n fleet.Notice) bool {
		return n.Tenant == tenant && (sessionID == "" || n.SessionID == sessionID)
	})
	defer w.Close()
	beat := func() error { return send(nil, 0) }
	if err := beat(); err != nil {
		return err
	}
	return watch.Loop(ctx, b.shutdown, every, w.Ready(), beat, func() error {
		batch := w.Take()
		for i := range batch.Values {
			if err := send(&batch.Values[i], batch.Dropped); err != nil {
				return err
			}
			batch.Dropped = 0
		}
		return nil
	})
}
