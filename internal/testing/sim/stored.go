package sim

import (
	"bytes"
	"context"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

// stall has the disk of the outbox hang, or go on. As with one that fails, the bridge does not end before it works.
func (w *world) stall(n int) {
	if w.variant == 0 {
		return
	}
	w.unstall()
	if n%3 == 2 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.ended != nil {
		return
	}
	w.note("the disk of the outbox hangs")
	w.failed = true
	w.life.disks.outbox.hang(true)
}

// unstall has the disk of the outbox go on.
func (w *world) unstall() {
	if w.variant == 0 {
		return
	}
	w.life.disks.outbox.hang(false)
	synctest.Wait()
}

// checkAcknowledged: a message is stored when its caller learns that it is accepted, or the caller learns that it is not. The
// caller holds the world's lock.
func (w *world) checkAcknowledged(p *prompt) {
	if w.variant == 0 {
		return
	}
	if p.inMemory && (!w.failed || w.clustered) {
		w.failures = append(w.failures, "P is said to be in memory only, and the disk has worked: "+p.id)
	}
	f := w.life.disks.outbox
	f.mu.Lock()
	defer f.mu.Unlock()
	if !p.inMemory && !bytes.Contains(f.content[stateFile], []byte(p.id)) && w.life.s.Prompts().Outbox().Pending(p.id) {
		w.failures = append(w.failures, "a message is acknowledged, and not stored: "+p.id)
	}
}

// checkSecrets: the disk of the outbox has no secret. The caller holds the world's lock.
func (w *world) checkSecrets(d disks) {
	d.outbox.mu.Lock()
	defer d.outbox.mu.Unlock()
	for name, data := range d.outbox.content {
		if bytes.Contains(data, []byte(hidden)) {
			w.failures = append(w.failures, "a secret is stored in "+name)
		}
	}
}

// shutDown has the bridge shut down, as Bridge.Close does: it stores what has changed, and the outbox has nothing of turns that have
// ended.
func (w *world) shutDown() {
	w.save()
	w.mu.Lock()
	if w.saved == nil || w.variant == 0 || w.failed || w.life.ended != nil {
		w.mu.Unlock()
		return
	}
	w.note("the bridge shuts down")
	l := w.life
	l.ended = &disks{}
	w.crashes++
	w.stop.ends++
	w.restarts++
	w.mu.Unlock()
	rests := l.s.Loader().State() == session.Loaded && !l.s.Turns().Running()
	l.cancel()
	synctest.Wait()
	_ = l.s.Journal().Close(context.Background())
	l.s.Prompts().Close()
	left := l.disks.clone()
	w.mu.Lock()
	defer w.mu.Unlock()
	*l.ended = left
	w.checkSecrets(left)
	if w.cli != nil {
		_ = w.cli.pipe.Close()
	}
	box, err := outbox.Open(left.clone().outbox)
	if err != nil {
		w.failures = append(w.failures, "the outbox of a bridge that has shut down: "+err.Error())
		return
	}
	for _, p := range w.prompts {
		if rests && p.over && p.err == nil && p.outcome.Err == nil && p.id != "" && box.Pending(p.id) {
			w.failures = append(w.failures, "the outbox of a bridge that has shut down has a message whose turn has ended: "+p.id)
		}
	}
}
