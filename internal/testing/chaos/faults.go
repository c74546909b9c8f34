package main

import (
	"context"
	"syscall"
	"time"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// cut breaks a caller's connections.
func (w *world) cut(s step) {
	w.rec.struck("connection cut")
	w.caller(s.pick[0]).cut(false)
}

func (w *world) kill(step) {
	w.rec.struck("runtime killed")
	w.host.signal(syscall.SIGKILL)
}

// deafen has the CLI read no more.
func (w *world) deafen(step) {
	w.rec.struck("runtime deaf")
	w.host.signal(syscall.SIGSTOP)
}

// rest does nothing for so long that sessions are unloaded.
func (w *world) rest(step) {
	idle := idleUnload
	if w.plan.real() {
		idle = realIdleUnload
	}
	pause(w.ctx, idle*3/2)
}

// restart drains the server in the middle of other work, and starts it again.
func (w *world) restart(step) {
	w.rec.struck("bridge drained and restarted")
	begin := time.Now()
	if err := w.host.stop(); err != nil {
		w.rec.violated("the server did not end well: %v", err)
	}
	w.rec.logf("the server ended after %v", time.Since(begin).Round(time.Millisecond))
	w.startAgain()
}

// crash ends the server without its having a say. Callers are cut off first: what they have not been told by now does
// not count as told.
func (w *world) crash(step) {
	w.rec.struck("bridge killed")
	for _, c := range w.callers {
		c.cut(true)
	}
	if err := w.host.crash(); err != nil {
		w.rec.violated("crash: %v", err)
	}
	w.startAgain()
}

func (w *world) startAgain() {
	if err := w.host.start(); err != nil {
		w.rec.violated("the server does not start again: %v", err)
		w.cancel()
	}
	for _, c := range w.callers {
		c.up()
	}
	if w.model == nil {
		return
	}
	for _, to := range w.sessions {
		w.calls.running.Go(func() { w.provide(to) })
	}
}

// provide gives a session its credentials back, which outlive no bridge.
func (w *world) provide(to *conversation) {
	for range 50 {
		err := w.calls.do("ProvideCredentials", func(ctx context.Context) error {
			_, err := w.callers[0].sessions.ProvideCredentials(ctx, &bridgev1.ProvideCredentialsRequest{
				SessionId: to.id, Provider: w.model.provider(),
			})
			return err
		})
		if err == nil || reasonOf(err) != "" || w.ctx.Err() != nil {
			return
		}
		pause(w.ctx, 50*time.Millisecond)
	}
}
