package bridge

import (
	"bytes"
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/broadcast"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// noticeQueue bounds the notices that wait for one watcher. When it is full the oldest is
// dropped and counted.
const noticeQueue = 1024

// notices broadcasts what CLI processes report beside the events of sessions.
type notices = broadcast.Hub[notice]

// notice is one report of a CLI process.
type notice struct {
	tenant  string // the runtime's
	session string // empty if it is about none
	runtime string
	params  []byte
	bridge  bool // the bridge caused it
}

func newNotices() *notices { return broadcast.New[notice](noticeQueue, broadcast.DropOldest) }

// publish hands a notice about a session, or about none, to the watchers. It runs on the
// connection's reader and copies params.
func (bind *binding) publish(n *notices, sessionID string, params []byte, ofBridge bool) {
	n.Publish(notice{
		tenant: bind.profile.Tenant, session: sessionID, runtime: bind.id, params: bytes.Clone(params), bridge: ofBridge,
	})
}

// watchNotices sends the caller the notices of its tenant's runtimes about a session, or all,
// from now on, each with the number of notices dropped before it. It sends nil as a heartbeat:
// at first, and in pauses.
func (b *Bridge) watchNotices(
	ctx context.Context, n *notices, sessionID string, interval *durationpb.Duration, send func(n *notice, lost int64) error,
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
	w := n.Subscribe(func(n notice) bool {
		return n.tenant == tenant && (sessionID == "" || n.session == sessionID)
	})
	defer w.Close()
	beat := func() error { return send(nil, 0) }
	if err := beat(); err != nil {
		return err
	}
	return b.watch(ctx, every, w.Ready(), beat, func() error {
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
