package session

import (
	"context"
	"errors"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// storedTimeout bounds the wait for the storage before a caller is told what it has done.
const storedTimeout = 30 * time.Second

// storePause is the first pause before a storage that fails is tried again. The pauses double up to maxStorePause.
const (
	storePause    = 100 * time.Millisecond
	maxStorePause = 2 * time.Second
)

// storing stores something by f, which it calls again after a failure until ctx ends. It returns the last error, which is
// backend.ErrStale if another server has the session.
func storing(ctx context.Context, f func() error) error {
	for pause := storePause; ; pause = min(2*pause, maxStorePause) {
		err := f()
		if err == nil || errors.Is(err, backend.ErrStale) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// whenStored calls done when what was appended so far is stored, if another process may continue the session: at once, or on
// another goroutine. Then that process knows of it, too. The error says that this does not come about in time.
func (s *Session) whenStored(done func(error)) {
	end := s.journal.Appended()
	if shown := s.journal.Shown(); !s.journal.Remote() || shown.Epoch == end.Epoch && shown.Seq >= end.Seq {
		done(nil)
		return
	}
	if !s.host.Go(func(ctx context.Context) { done(s.awaitStored(ctx)) }) {
		done(async.ErrStopping)
	}
}

// awaitStored is whenStored for a caller that waits.
func (s *Session) awaitStored(ctx context.Context) error {
	if !s.journal.Remote() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storedTimeout)
	defer cancel()
	if err := s.journal.AwaitShown(ctx); err != nil {
		return unavailable(err)
	}
	return nil
}
