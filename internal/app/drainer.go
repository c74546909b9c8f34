package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge"
)

// drainer ends the streams of the bridge, and lets its turns end.
type drainer struct {
	bridge *bridge.Bridge
	grace  time.Duration
	// hard ends when the server must stop without waiting.
	hard context.Context
	// begun is called when draining begins.
	begun func()
	// empty hands the sessions over to other replicas, if there are any, for as long as its context lasts.
	empty func(ctx context.Context)
	log   *slog.Logger
}

// Drain implements server.Drainer. It waits for the turns that run: a caller that has
// only sent a prompt is no call under way. It does not wait for streams and calls, which
// the server does, and no longer than they last.
func (d drainer) Drain(ctx context.Context) error {
	d.begun()
	d.log.Info("stopping: waiting for turns to end", slog.Int("turns", d.bridge.RunningTurns()),
		slog.Duration("at_most", d.grace))
	d.bridge.Drain(d.grace)
	ctx, cancel := context.WithTimeout(ctx, d.grace)
	defer cancel()
	defer context.AfterFunc(d.hard, cancel)()
	d.empty(ctx)
	d.bridge.AwaitTurns(ctx)
	d.log.Info("stopping: waiting for calls to end", slog.Int("turns_left", d.bridge.RunningTurns()))
	return nil
}
