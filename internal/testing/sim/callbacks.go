package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// variant says who handles the callbacks of a run. Its digits to the bases 2, 3, 2 and 3 are:
//
//   - whether there is room for two callbacks and for few events only;
//   - the session's own handling: none, tools only, or tools, permissions and questions;
//   - whether there are two participants, of which each handles permissions and questions, and has a tool unless the
//     session has it;
//   - whether callers answer the callbacks that wait when the run is over: not if it is zero.
//
// From 36 on, the agent is told to continue turns that are lost with their process.
//
// The zero variant has no tools and no callbacks.
type variant int

// variants is the number of variants. Runs with more have the same with a provider or a token (see provider.go), with
// participants that declare commands, or with a provider that has headers (see messages.go).
const variants = 72

func (v variant) continues() bool { return v/(variants/2)%2 == 1 }

func (v variant) provision() provision {
	if v.provides() {
		return anyModel
	}
	return provision(v / variants % 3)
}

// provides reports whether the session has a provider with headers.
func (v variant) provides() bool { return v >= 6*variants }

// declares reports whether the participants declare commands.
func (v variant) declares() bool { return v/(3*variants)%2 == 1 }

func (v variant) narrow() bool { return v%2 == 1 }

func (v variant) own() int { return int(v) / 2 % 3 }

func (v variant) attended() bool { return v/6%2 == 1 }

func (v variant) answers() bool { return v/12%3 > 0 }

// limit is the time for an answer.
const limit = time.Minute

var asks = config.Handling{Methods: []string{
	callback.PermissionRequested, askUser, callback.HooksInvoke, callback.ModelRequestStart, callback.ModelRequestChunk,
}}

// askUser is the method of the agent's questions.
const askUser = "userInput.request"

func tool(kind rune) config.Tool {
	name := string(kind)
	return config.Tool{Name: name, JSON: json.RawMessage(fmt.Sprintf(`{"name":%q}`, name))}
}

func (v variant) opening() session.Opening {
	o := session.Opening{Timeout: limit}
	if v.continues() {
		o.OnInterruption = bridgev1.OnInterruption_ON_INTERRUPTION_CONTINUE
	}
	p := newProvider(v)
	o.Config = p.credentials(v, p.key.one())
	if v.provides() {
		setProvider(&o.Config)
	}
	if v.own() > 0 {
		o.Tools = &[]config.Tool{tool(callersTool), tool(permitted)}
	}
	if v.own() > 1 {
		o.Handling = &asks
	}
	return o
}

// room counts the callbacks that have a place. Without places it has room for all.
type room struct {
	places  int64
	taken   atomic.Int64
	refused *atomic.Int64 // by all processes of the bridge
}

// Take implements callback.Room.
func (r *room) Take() bool {
	if r.places > 0 && r.taken.Load() >= r.places { // the registry takes one at a time
		r.refused.Add(1)
		return false
	}
	r.taken.Add(1)
	return true
}

// Give implements callback.Room.
func (r *room) Give() { r.taken.Add(-1) }

// asking is a callback as callers know it.
type asking struct {
	p *callback.Pending
	// open: callers have been told of it, and not of its end.
	open bool
	// times counts how often they have been told: the CLI asks again what it has lost the answer to.
	times  int
	ends   int // that they have been told
	since  time.Time
	aborts int // before that
	dead   int // processes that had ended before that

	answers   []*answered
	abstained map[string]bool
	// orphaned: since callers were told, there was a time without a handler.
	orphaned bool
	// changes and handlers are those of participants when it was requested.
	changes, handlers int
	// unanswered: the default answer has ended it. answeredOnce: an answer has.
	unanswered, answeredOnce bool
	// disconnected: its turn has ended with a disconnection, by the process of the bridge that endedIn counts. The next one
	// need not know of that.
	disconnected bool
	endedIn      int
	elsewhere    bool // a caller answers it by the method for its event
	// taken are the answers that CLI processes have accepted, with the marks of callers.
	taken []string
}

// answered is an answer of a caller. Its mark is in what the CLI receives.
type answered struct {
	mark string
	text string
	over bool
	err  error
}

// CallbackRequested implements session.Host.
func (h host) CallbackRequested(p *callback.Pending) { h.hears(func() { h.w.requested(p) }) }

// CallbackResolved implements session.Host.
func (h host) CallbackResolved(r session.Resolved) { h.hears(func() { h.w.resolved(r) }) }

// hears has the world learn something, unless its process is gone.
func (h host) hears(learn func()) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if h.w.lives(h.life) {
		learn()
	}
}

func (w *world) requested(p *callback.Pending) {
	a := w.callbacks[p.ID]
	if a == nil {
		a = &asking{}
		w.callbacks[p.ID], w.order = a, append(w.order, a)
	}
	if a.open {
		w.failures = append(w.failures, fmt.Sprintf("callback %s is requested while it is pending", p.ID))
	}
	if a.disconnected && a.endedIn == w.restarts {
		w.failures = append(w.failures, fmt.Sprintf("callback %s is requested again, although the session was disconnected", p.ID))
	}
	a.p, a.open, a.since, a.aborts, a.dead, a.abstained = p, true, time.Now(), w.aborts, w.crashes, map[string]bool{}
	a.orphaned, a.changes, a.handlers = !w.handled(p), w.changes, w.hookHandlers()
	w.note("callback %s is requested", p.ID)
	for _, s := range w.seats {
		if p.Reply != nil && s.presence == present && w.handledBy(s, p) {
			s.stream.expected++
		}
	}
	w.offersModel(p)
	if a.times++; w.cli == nil || w.owner.lost { // the process that has asked has ended meanwhile, or ends with its replica
		a.dead--
	}
}

// resolved checks that a callback may end so.
func (w *world) resolved(n session.Resolved) {
	w.note("callback %s ends: %v", n.ID, n.Outcome)
	a := w.callbacks[n.ID]
	if a == nil || !a.open {
		w.failures = append(w.failures, fmt.Sprintf("callback %s ends twice, or without a request", n.ID))
		return
	}
	a.open = false
	a.ends++
	right := false
	w.endsModel(n)
	switch n.Outcome {
	case bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED:
		a.answeredOnce = true
		for _, s := range w.seats {
			if s.id == n.Participant && s.sits() && n.Participant != "" && n.By.Name != s.name() {
				w.failures = append(w.failures, fmt.Sprintf("callback %s is answered by %q, not %q", n.ID, n.By.Name, s.name()))
			}
		}
		right = len(a.answers) > 0 || a.elsewhere || a.p.Hook != "" && a.abstained[a.p.For]
	case bridgev1.CallbackOutcome_CALLBACK_OUTCOME_TIMED_OUT:
		a.unanswered = true
		right = time.Since(a.since) >= limit || a.p.Kind.Limit > 0 && time.Since(a.since) >= a.p.Kind.Limit
	case bridgev1.CallbackOutcome_CALLBACK_OUTCOME_UNHANDLED:
		right = a.orphaned || !w.handled(a.p) || w.left(a)
	case bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN:
		// The CLI may accept an answer after the bridge has ceased to wait for that.
		right = w.aborts > a.aborts || w.crashes > a.dead || len(a.taken) > 0 || !slices.Contains(w.cli.waits(), hookOf(n.ID))
	case bridgev1.CallbackOutcome_CALLBACK_OUTCOME_SESSION_ENDED:
		right = w.disconnecting > 0
		a.disconnected, a.endedIn = true, w.restarts
	case bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST:
		right = w.crashes > a.dead || a.p.Kind.Bound && !w.cli.connected(a.p.For) || w.deletion.closed // whose next handler is asked before the bridge knows
	}
	if !right && !w.owner.lost {
		w.failures = append(w.failures, fmt.Sprintf("callback %s of %s ends as %v", n.ID, n.Kind.Method, n.Outcome))
	}
}

// left reports whether all participants to which a callback was offered have abstained, and the session does not handle
// it.
func (w *world) left(a *asking) bool {
	own := w.variant.own() == 2 || w.watching == watched && a.p.For == roster.Everybody && slices.Contains(watchedMethods, a.p.Kind.Method) || w.variant.own() == 1 && a.p.Kind.Method == callback.ToolRequested
	return (!own || a.p.Command != "" || a.p.Kind.Bound || modelMethod(a.p.Kind.Method) && a.p.For != roster.Everybody) && len(a.abstained) > 0
}

// taken notes an answer that a CLI process accepts.
func (w *world) taken(id, text string) {
	if w.of != nil { // the bridge has lost its lease
		if a := w.of.callbacks[id]; a != nil {
			a.taken = append(a.taken, text)
		}
		return
	}
	a := w.callbacks[id]
	if a == nil {
		if w.refused.Load() == 0 {
			w.failures = append(w.failures, fmt.Sprintf("callback %s is answered unasked", id))
		}
		return
	}
	a.taken = append(a.taken, text)
	// The default answer for lack of room may reach the next process, which asks again when there is room.
	if strings.Contains(text, "mark") || w.refused.Load() > 0 {
		return
	}
	if late := time.Since(a.since) >= limit; !late && !a.orphaned && w.handled(a.p) && !w.left(a) && w.aborts == a.aborts && w.crashes == a.dead {
		w.failures = append(w.failures, fmt.Sprintf("callback %s gets a default answer too early: %s", id, text))
	}
}

// openCallbacks lists the callbacks whose end callers have not been told.
func (w *world) openCallbacks() (ids []string) {
	for _, a := range w.order {
		if a.open {
			ids = append(ids, a.p.ID)
		}
	}
	return ids
}

// pending counts the callbacks that the session shows as pending.
func (w *world) pending() int { return w.s.Callbacks().Registry().Len() }

// choose returns a callback and a caller. Most callbacks are those that wait.
func (w *world) choose(n int) (a *asking, by string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	among := w.order
	if n%4 != 3 {
		among = slices.DeleteFunc(slices.Clone(among), func(a *asking) bool { return !a.open })
	}
	if len(among) == 0 {
		return nil, ""
	}
	if len(w.seats) > 0 && n%5 != 4 && w.seats[n%2].presence == present {
		by = w.seats[n%2].id
	}
	return among[n/4%len(among)], by
}

// answer has a caller answer a callback.
func (w *world) answer(n int) {
	a, by := w.choose(n)
	if a == nil {
		return
	}
	w.mu.Lock()
	w.answers++
	one := &answered{mark: fmt.Sprintf("mark%d.", w.answers)}
	a.answers = append(a.answers, one)
	if a.p.Hook != "" {
		by = giverOf(a.p, n, by)
	}
	id, method := a.p.ID, a.p.Kind.Method
	w.note("%q answers %s: %s", by, id, one.mark)
	w.mu.Unlock()
	text := map[string]string{
		callback.ToolRequested:  fmt.Sprintf(`{"result":%q}`, one.mark),
		askUser:                 fmt.Sprintf(`{"answer":%q}`, one.mark),
		callback.HooksInvoke:    hookAnswer(n+w.answers, one.mark),
		canvasMethod:            fmt.Sprintf(`{"url":%q}`, one.mark),
		callback.CommandExecute: fmt.Sprintf(`{"error":%q}`, one.mark),

		callback.ModelRequestStart: `{}`, callback.ModelRequestChunk: `{}`,
	}[method]
	if method == callback.PermissionRequested {
		kind := "approve-once"
		if n%7 == 6 {
			kind = "reject"
		}
		member := "feedback"
		if n%14 == 13 { // a refusal with no word for the agent ends its turn
			member = "by"
		}
		text = fmt.Sprintf(`{"result":{"kind":%q,%q:%q}}`, kind, member, one.mark)
	}
	one.text = text
	responder := callback.Responder{Participant: by, Digest: [32]byte{byte(w.answers), byte(w.answers >> 8)}}
	l := w.life
	c := w.begin(func() {})
	l.s.Callbacks().Resolve(c, id, responder, callback.Reply{Members: json.RawMessage(text)}, func(_ journal.Position, err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.returned(c)
		if !w.lives(l) {
			return
		}
		if one.over {
			w.failures = append(w.failures, fmt.Sprintf("the answer %s ends twice", one.mark))
		}
		one.over, one.err = true, err
		w.note("answer %s: %v", one.mark, err)
		if err == nil {
			w.toldAnswer(a)
		}
	})
	synctest.Wait()
}

// abstain has a participant leave a callback to others.
func (w *world) abstain(n int) {
	a, by := w.choose(n)
	if a == nil || by == "" {
		return
	}
	w.mu.Lock()
	id := a.p.ID
	a.abstained[by] = true
	a.orphaned = a.orphaned || w.left(a) // and who handles it later comes too late
	w.abstaining++
	l := w.life
	w.mu.Unlock()
	l.s.Callbacks().Abstain(l.ctx, id, by, func(journal.Position, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.lives(l) {
			w.abstaining--
		}
	})
	synctest.Wait()
}

// checkStep checks what holds after each step.
func (w *world) checkStep() {
	w.checkWatched()
	w.checkQuiet()
	w.checkEpochs()
	w.mu.Lock()
	w.checkOffered()
	w.mu.Unlock()
	if n, taken := w.pending(), w.room.taken.Load(); int64(n) != taken {
		w.fail("%d callbacks are pending, and %d places are taken", n, taken)
	}
}

// patience is how long the session may take to bring its callbacks in step with the CLI: as long as an answer may take. A load that
// connects participants waits for a command, which waits for its participant.
const patience = session.AnswerTimeout + 15*time.Second

// checkWaiting lets the CLI do all that it can, and compares what it waits for with what the session shows.
func (w *world) checkWaiting() {
	bound := patience
	for began := time.Now(); ; w.pass(time.Second) {
		for w.step(0) {
		}
		w.mu.Lock()
		waits := w.cli.waits()
		shown := w.openCallbacks()
		if w.invoking && bound == patience {
			bound += limit
		}
		w.mu.Unlock()
		for i, id := range shown {
			shown[i] = hookOf(id)
		}
		slices.Sort(waits)
		slices.Sort(shown)
		if slices.Equal(waits, shown) {
			return
		}
		w.reload()
		if time.Since(began) > bound {
			w.fail("the CLI waits for %v, the session shows %v", waits, shown)
			return
		}
	}
}

// checkCallbacks checks what callers were told of their answers.
func (w *world) checkCallbacks() {
	for _, a := range w.order {
		accepted := 0
		for _, one := range a.answers {
			switch {
			case !one.over:
				w.fail("the answer %s to callback %s does not end", one.mark, a.p.ID)
			case a.p.Kind.Survives && fault.ReasonOf(one.err) == fault.RuntimeLost && w.crashes == 1 && w.disconnects == 0:
				w.fail("the answer %s to callback %s does not reach the next process: %v", one.mark, a.p.ID, one.err)
			case one.err == nil:
				accepted++
				reached := slices.ContainsFunc(a.taken, func(text string) bool { return strings.Contains(text, one.mark) })
				// A question has no reply to its answer: the CLI may be gone, or the turn aborted.
				// The default answer for lack of room has no claim, and may reach the next process before the answer does.
				if m, _ := w.modelCallOf(a.p.ID); m == nil && !reached && a.p.Hook == "" && w.refused.Load() == 0 && !(a.p.Kind.Method == askUser && (w.crashes > a.dead || w.aborts > a.aborts || w.disconnects > 0 || a.elsewhere)) {
					w.fail("the answer %s to callback %s has not reached the CLI", one.mark, a.p.ID)
				}
			}
		}
		if accepted > a.times {
			w.fail("%d answers to callback %s are accepted, which was requested %d times", accepted, a.p.ID, a.times)
		}
	}
	if w.abstaining != 0 {
		w.fail("%d callers who abstain are not told of it", w.abstaining)
	}
	if w.cli != nil {
		for id := range w.cli.questions {
			w.fail("the request %s has no reply", id)
		}
		for id := range w.cli.lost {
			w.fail("the request %s has no reply", id)
		}
	}
}

// request is a request of the CLI.
func (rt *runtime) request(ctx context.Context, q *rpcconn.Request) (json.RawMessage, error) {
	var p struct{ Question string }
	if err := json.Unmarshal(q.Params, &p); err != nil {
		return nil, err
	}
	var id string
	_ = json.Unmarshal([]byte(q.ID), &id) // a text
	if modelLane(q) != "" {
		return rt.modelRequest(ctx, id, q)
	}
	if q.Method == callback.HooksInvoke {
		return rt.life.s.Callbacks().AskMethod(ctx, id, q.Method, q.Params)
	}
	return rt.life.s.Callbacks().AskMethod(ctx, "q-"+p.Question, q.Method, q.Params)
}
