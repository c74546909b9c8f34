package manage

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// WatchServerLog streams the server's warnings: the recorded ones and then new ones. It calls open before it sends.
func (svc *Runtimes) WatchServerLog(
	ctx context.Context, r *bridgev1.WatchServerLogRequest, open func() error,
	send func(*bridgev1.WatchServerLogResponse) error,
) error {
	every, err := stream.Heartbeat(r.GetHeartbeatInterval(), "heartbeat_interval")
	if err != nil {
		return err
	}
	if svc.cfg.Warnings == nil {
		return fault.New(fault.FeatureDisabled, "the server does not record its log")
	}
	records, w := svc.cfg.Warnings.subscribe()
	defer w.Close()
	if err := open(); err != nil {
		return err
	}
	if err := sendRecords(records, send); err != nil {
		return err
	}
	caughtUp := &bridgev1.WatchServerLogResponse_CaughtUp{CaughtUp: &bridgev1.ServerLogCaughtUp{}}
	if err := send(&bridgev1.WatchServerLogResponse{Frame: caughtUp}); err != nil {
		return err
	}
	beat := func() error {
		return send(&bridgev1.WatchServerLogResponse{Frame: &bridgev1.WatchServerLogResponse_Heartbeat{
			Heartbeat: &bridgev1.ServerLogHeartbeat{},
		}})
	}
	return stream.Loop(ctx, svc.cfg.Shutdown, every, w.Ready(), beat, func() error {
		batch := w.Take()
		if batch.Dropped > 0 {
			gap := &bridgev1.WatchServerLogResponse_Gap{Gap: &bridgev1.ServerLogGap{Lost: batch.Dropped}}
			if err := send(&bridgev1.WatchServerLogResponse{Frame: gap}); err != nil {
				return err
			}
		}
		return sendRecords(batch.Values, send)
	})
}

// sendRecords sends log records.
func sendRecords(records []*bridgev1.ServerLogRecord, send func(*bridgev1.WatchServerLogResponse) error) error {
	for _, record := range records {
		err := send(&bridgev1.WatchServerLogResponse{Frame: &bridgev1.WatchServerLogResponse_Record{Record: record}})
		if err != nil {
			return err
		}
	}
	return nil
}
