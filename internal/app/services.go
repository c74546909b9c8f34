package app

import (
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/callback"
	"github.com/copilot-grpc/copilot-grpc/server/event"
	"github.com/copilot-grpc/copilot-grpc/server/raw"
	"github.com/copilot-grpc/copilot-grpc/server/runtime"
	"github.com/copilot-grpc/copilot-grpc/server/session"
	"github.com/copilot-grpc/copilot-grpc/server/surface"
)

// services are what the server serves of the bridge. RawService is among them even when
// it is off: its calls then say so.
func services(b *bridge.Bridge, internal bool) []server.Service {
	return []server.Service{
		session.New(session.Config{Backend: b}),
		event.New(event.Config{Backend: b}),
		callback.New(callback.Config{Backend: participants{b}}),
		runtime.New(runtime.Config{Backend: b}),
		raw.New(raw.Config{Backend: b}),
		surface.New(surface.Config{Backend: b, Internal: internal}),
	}
}

// participants gives the bridge the form that the callback service asks for: a method
// that returns an interface of that package.
type participants struct{ *bridge.Bridge }

// Attach implements callback.Backend.
func (p participants) Attach(ctx context.Context, start *bridgev1.AttachStart) (callback.Attachment, error) {
	a, err := p.Bridge.Attach(ctx, start)
	if err != nil {
		return nil, err // and not a nil attachment in an interface
	}
	return a, nil
}

// drainer ends the streams of the bridge, and lets its turns end.
type drainer struct {
	bridge *bridge.Bridge
	grace  time.Duration
	// hard ends when the end must not wait for anybody.
	hard context.Context
	// begun is told that the draining begins.
	begun func()
}

// Drain implements server.Drainer. It waits for the turns that run: a caller that has
// only sent a prompt is no call under way. It does not wait for streams and calls, which
// the server does, and no longer than they last.
func (d drainer) Drain(ctx context.Context) error {
	d.begun()
	d.bridge.Drain(d.grace)
	ctx, cancel := context.WithTimeout(ctx, d.grace)
	defer cancel()
	defer context.AfterFunc(d.hard, cancel)()
	d.bridge.AwaitTurns(ctx)
	return nil
}
