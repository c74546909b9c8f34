package passthrough

import (
	"context"
	"encoding/json"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

const (
	// maxLogWait is the longest that the CLI itself would let a read of its log wait.
	maxLogWait = 30 * time.Second
	// maxParked bounds the calls of a tenant that wait in the CLI for something to happen, so that
	// there is room for others.
	maxParked = 32
)

// readLog is session.eventLog.read. Where it is to wait, it waits for the journal, which
// has each event at the latest when the log has it, and asks the CLI only then.
func (svc *Service) readLog(ctx context.Context, s *session.Session, c *call) (json.RawMessage, error) {
	var waitMs float64
	if json.Unmarshal(c.params.Get("waitMs"), &waitMs) != nil {
		waitMs = 0
	}
	params := c.params.Clone()
	if params.Get("waitMs") != nil {
		params.Set("waitMs", json.RawMessage("0"))
	}
	timer := time.NewTimer(min(time.Duration(waitMs)*time.Millisecond, maxLogWait))
	defer timer.Stop()
	woken := make(chan struct{}, 1)
	reader, err := s.Journal().NewReader(s.Journal().Last(), true, journal.Waking(woken))
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "reading the journal")
	}
	defer reader.Close()
	var passed []*journal.Record
	for {
		result, at, err := s.Loader().Do(ctx, c.method, params)
		if err != nil || waitMs <= 0 || !emptyLog(result) {
			return recorded(ctx, result, at, err)
		}
		for more := true; more; {
			passed, _ = reader.Next(passed[:0], maxLogBytes)
			more = len(passed) > 0
		}
		select {
		case <-woken:
		case <-timer.C:
			return recorded(ctx, result, at, nil)
		case <-svc.cfg.Shutdown.Stopped().Done():
			return recorded(ctx, result, at, nil)
		case <-ctx.Done():
			return nil, session.Classify(ctx.Err(), c.method)
		}
	}
}

// maxLogBytes is how much of the journal is passed over at a time.
const maxLogBytes = 1 << 20

// emptyLog reports whether a read has found nothing yet.
func emptyLog(result json.RawMessage) bool {
	var log struct {
		Events  []json.RawMessage
		HasMore bool
	}
	return json.Unmarshal(result, &log) == nil && len(log.Events) == 0 && !log.HasMore
}

// park makes a call that waits in the CLI for something to happen.
func (svc *Service) park(ctx context.Context, c *call) (json.RawMessage, error) {
	// Each tenant has its own CLI processes.
	limit := quota.Limit{Name: "waiting calls", Tenant: maxParked, Fixed: true}
	release, err := svc.parked.Take(caller.From(ctx).Tenant, limit)
	if err != nil {
		return nil, err
	}
	defer release()
	return svc.forward(ctx, c)
}
