package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
)

// comesBack has a caller ask a process of the bridge what has become of its prompt, which an earlier one has received.
func (w *world) comesBack(l *life, p *prompt) {
	if p.id == "" && !w.repeat(l, p) {
		return
	}
	for {
		waiter, _, found, err := l.s.TurnOf(l.ctx, p.id)
		switch {
		case l.ctx.Err() != nil:
			return
		case w.clustered && fault.ReasonOf(err) == fault.SessionUnavailable: // it is moving, and the caller asks again
			select {
			case <-time.After(time.Second):
			case <-l.ctx.Done():
			}
			continue
		case errors.Is(err, rpcconn.ErrClosed): // by the end of the process that was to load the session
			continue
		case err != nil && w.awaitsKey(l):
			continue
		case err != nil:
			w.told(l, p, turn.Outcome{}, err)
		case isOver(waiter.Done()) && !found:
			w.told(l, p, turn.Outcome{}, errEnded)
		default:
			l.await(waiter, func(out turn.Outcome, err error) { w.told(l, p, out, err) })
		}
		return
	}
}

func isOver(done <-chan struct{}, _ func() turn.Outcome) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// told notes what a caller who has come back is told.
func (w *world) told(l *life, p *prompt, out turn.Outcome, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lives(l) {
		p.over, p.outcome, p.err = true, out, err
		w.note("%s: %s %v", p.id, p, err)
	}
}

// errEnded stands for the outcome of a prompt whose turn ended before its caller came back, and that the journal does not have.
var errEnded = errors.New("its turn has ended")

// errUnsent is the error of a prompt that no process of the CLI has accepted.
var errUnsent = errors.New("the bridge ended before the CLI replied")

// repeat has a caller ask again for a prompt of which it knows only the id of its request, as package prompt does it. It reports
// whether the prompt is in the conversation, or will be.
func (w *world) repeat(l *life, p *prompt) bool {
	err := context.Canceled
	for ok := false; !ok; ok = !errors.Is(err, rpcconn.ErrClosed) && (err == nil || !w.awaitsKey(l)) {
		if _, err = l.s.Loader().Load(l.ctx); l.ctx.Err() != nil {
			return false
		}
	}
	if err != nil {
		w.told(l, p, turn.Outcome{}, errConnection)
		return false
	}
	id, _, ok, err := l.s.Prompts().AnswerTo(l.ctx, p.request)
	if err != nil { // it asks again
		return w.repeat(l, p)
	}
	if !ok {
		id, _, ok = l.s.Prompts().FindMessage(l.ctx, p.before, p.contents()...)
	}
	if !ok {
		w.told(l, p, turn.Outcome{}, errUnsent)
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.lives(l) {
		return false
	}
	p.id = id
	w.note("the request %s was accepted as %s", p.request, id)
	return true
}

// contents are the texts of which the history has one, if it has the prompt.
func (p *prompt) contents() []string {
	all := []string{p.text(p.n, 0)}
	if p.form == displayed {
		all = append(all, fmt.Sprintf("P%d shown", p.n))
	}
	return all
}
