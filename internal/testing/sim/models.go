package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The methods with which the bridge gives the CLI a model's response.
const (
	responseStart = "llmInference.httpResponseStart"
	responseChunk = "llmInference.httpResponseChunk"
)

// The statuses of responses that the bridge gives: no participant answers, or the connection of the one that does breaks.
const (
	statusRefused = 400
	statusBroken  = 503
)

// acceptance is how long the CLI may take to accept a part of a response.
const acceptance = 30 * time.Second

// modelCall is a request to a model that a CLI process makes by way of callers, and for which its agent waits.
type modelCall struct {
	id      string
	process *cli
	// sent counts the process's requests about it: the first begins it, each of the others has a piece of its body. replied and
	// offered are how many have a reply, and which was put to a caller last.
	sent, replied, offered int
	whole                  bool // the last piece was sent
	// cancelled: the process does not need the response any more. over: it has the whole response, or its end.
	cancelled, over bool
	begun           bool // it has the head of the response

	// taken: a caller, or the participant that is its owner, answers it.
	taken bool
	owner string
	// failed: a request about it was not answered. broken and left: its owner lost its connection, or left. hung:
	// the CLI hung.
	failed, broken, left, hung bool
	heard                      time.Time // of its owner, last
	parts                      []*modelPart
	ending                     bool // the bridge ends it
}

// modelPart is a part that a caller gives.
type modelPart struct {
	mark              string
	head, end         bool
	over, accepted    bool
	arrived, rejected bool
}

// open reports whether the process waits for the response.
func (m *modelCall) open() bool { return !m.cancelled && !m.over }

// underway reports whether a caller waits for the reply to a part: the next one comes behind that.
func (m *modelCall) underway() bool {
	return slices.ContainsFunc(m.parts, func(p *modelPart) bool { return !p.over })
}

// silent reports whether its owner has been silent for too long.
func (m *modelCall) silent() bool { return m.taken && time.Since(m.heard) >= limit }

// endable reports whether the bridge may end the response.
func (m *modelCall) endable() bool { return m.failed || m.broken || m.left || m.silent() }

// request is the id of the n-th request about it, and of the callback that it is.
func (m *modelCall) request(n int) string { return fmt.Sprintf("m-%s.%d", m.id, n) }

// modelCallOf finds a model call by the id of a request about it, of which it returns the number.
func (w *world) modelCallOf(request string) (m *modelCall, n int) {
	rest, is := strings.CutPrefix(request, "m-")
	if !is {
		return nil, 0
	}
	id, number, _ := strings.Cut(rest, ".")
	_, _ = fmt.Sscan(number, &n)
	for _, m := range w.models {
		if m.id == id {
			return m, n
		}
	}
	return nil, 0
}

// asksModel returns the model call whose response the agent waits for; nil if there is none.
func (c *cli) asksModel() *modelCall {
	if n := len(c.models); n > 0 && c.models[n-1].open() {
		return c.models[n-1]
	}
	return nil
}

// infers has the agent ask a model by way of callers, or send the next piece of what it asks.
func (c *cli) infers(n int) {
	m := c.asksModel()
	switch {
	case c.w.clustered || c.phase != thinking || c.stuck:
	case m == nil:
		m = &modelCall{id: fmt.Sprint("r", len(c.w.models)), process: c}
		c.w.models, c.models = append(c.w.models, m), append(c.models, m)
		c.sayModel(m, callback.ModelRequestStart, fmt.Sprintf(`"sessionId":"s1","method":"POST","url":"http://model","requestId":%q`, m.id))
		if n%3 == 0 {
			c.infers(n + 1)
		}
	case !m.whole:
		m.whole = n%3 == 0 || m.sent > 3
		c.sayModel(m, callback.ModelRequestChunk, fmt.Sprintf(`"requestId":%q,"data":"piece%d","end":%v,"cancel":false`, m.id, m.sent, m.whole))
	}
}

// cancelModels tells that the agent needs no response any more.
func (c *cli) cancelModels() {
	if m := c.asksModel(); m != nil {
		m.cancelled = true
		c.sayModel(m, callback.ModelRequestChunk, fmt.Sprintf(`"requestId":%q,"data":"","end":true,"cancel":true`, m.id))
	}
}

// forgetModels is for the end of the session's work, which needs no response.
func (c *cli) forgetModels() []*modelCall {
	if m := c.asksModel(); m != nil {
		m.cancelled = true
	}
	return c.models
}

func (c *cli) sayModel(m *modelCall, method, params string) {
	c.w.note("CLI: %s {%s}", method, params)
	c.pipe.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%q,"params":{%s}}`, m.request(m.sent), method, params))
	m.sent++
}

// openModels are the requests about model calls that the bridge works on: those about one come one after the other.
func (c *cli) openModels() (ids []string) {
	for _, m := range c.models {
		if m.replied < m.sent {
			ids = append(ids, m.request(m.replied))
		}
	}
	return ids
}

// modelReplied takes the reply to a request about a model call. It reports whether it is one.
func (c *cli) modelReplied(method, id, answer string) bool {
	m, n := c.w.modelCallOf(strings.Trim(id, `"`))
	if m == nil || method != "" {
		return false
	}
	if n != m.replied || n >= m.sent || answer != `{}` {
		c.w.failures = append(c.w.failures, fmt.Sprintf("the bridge replies to %s behind %d of %d: %s", id, m.replied, m.sent, answer))
	}
	m.replied = n + 1
	last := m.cancelled && n == m.sent-1 && !slices.ContainsFunc(m.parts, func(p *modelPart) bool { return p.rejected })
	if m.taken && (m.open() || last && !m.over) && !m.ending && !m.endable() && m.offered < n && c.w.lives(c.life) && c.w.refused.Load() == 0 {
		c.w.failures = append(c.w.failures, fmt.Sprintf("a piece of the model call %s is kept from its owner: %s", m.id, id))
	}
	return true
}

// offersModel checks how a request about a model call is put to callers. The caller holds the world's lock.
func (w *world) offersModel(p *callback.Pending) {
	m, n := w.modelCallOf(p.ID)
	if m == nil {
		return
	}
	want := roster.Everybody
	if a := w.callbacks[m.request(0)]; n > 0 && !m.taken && a.open && len(a.answers) > 0 { // its answer is about to be told
		m.taken, m.owner, m.heard = true, strings.TrimPrefix(p.For, roster.Itself), time.Now()
	}
	if n > 0 {
		if want = m.owner; want == "" {
			want = roster.Itself
		}
		if !m.taken || n <= m.offered || !strings.Contains(string(p.Params), fmt.Sprintf(`"piece%d"`, n)) && !m.cancelled {
			w.failures = append(w.failures, fmt.Sprintf("a piece of the model call %s is put to callers: %s, behind %d, taken %v", m.id, p.Params, m.offered, m.taken))
		}
	}
	if p.For != want {
		w.failures = append(w.failures, fmt.Sprintf("%s is put to %q, not to %q", p.ID, p.For, want))
	}
	m.offered = n
}

// endsModel notes the end of a callback that is a request about a model call. The caller holds the world's lock.
func (w *world) endsModel(of session.Resolved) {
	switch m, n := w.modelCallOf(of.ID); {
	case m == nil:
	case of.Outcome != bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED:
		m.failed = true
	case n == 0 && m.taken && m.owner != of.Participant:
		w.failures = append(w.failures, fmt.Sprintf("%q takes the model call %s, and its pieces go to %q", of.Participant, m.id, m.owner))
	case n == 0:
		m.taken, m.owner, m.heard = true, of.Participant, time.Now()
	}
}

// losesOwner notes that a participant has left, or lost its connection. The caller holds the world's lock.
func (w *world) losesOwner(id string, leaves bool) {
	for _, m := range w.models {
		if m.taken && m.owner == id && id != "" {
			m.left, m.broken = m.left || leaves, m.broken || !leaves
		}
	}
}

// takeResponse takes a part of a model's response.
func (c *cli) takeResponse(r request) {
	i := slices.IndexFunc(c.models, func(m *modelCall) bool { return m.id == r.params.RequestID })
	if i < 0 || !c.models[i].open() {
		if i >= 0 && c.models[i].over && !c.models[i].ending && !c.models[i].hung { // the bridge knows that it has ended
			c.w.failures = append(c.w.failures, fmt.Sprintf("the bridge gives a part of the response %s, which has ended: %s", r.params.RequestID, r.params.Data))
		}
		for _, m := range c.w.models {
			if m.id == r.params.RequestID {
				m.arrives(r, false)
			}
		}
		c.reply(r, `{"accepted":false}`)
		return
	}
	m := c.models[i]
	head, fails := r.method == responseStart, len(r.params.Error) > 0
	if head == m.begun && !(fails && !m.begun) {
		c.w.failures = append(c.w.failures, fmt.Sprintf("the response %s has a head: %v, and gets another part: %v", m.id, m.begun, head))
	}
	m.begun = m.begun || head
	if p := m.arrives(r, true); p == nil {
		c.endsByBridge(m, r, head, fails)
	} else if p.head != head || p.end != (r.params.End || fails) {
		c.w.failures = append(c.w.failures, fmt.Sprintf("the part %s of the response %s arrives as another one", p.mark, m.id))
	}
	if m.over = r.params.End || fails; m.over {
		c.w.note("the response %s has ended", m.id)
	}
	c.reply(r, `{"accepted":true}`)
}

// endsMeanwhile notes that the bridge ends a response while a caller gives a part, which may be the last one.
func (c *cli) endsMeanwhile(r request) {
	for _, m := range c.models {
		mark := r.params.Data + r.params.StatusText
		if modelMethod(r.method) && m.id == r.params.RequestID && m.underway() && !strings.HasPrefix(mark, "part") && m.endable() {
			m.ending = true
		}
	}
}

// arrives notes that a part of a caller has reached the process; it is nil for one of the bridge.
func (m *modelCall) arrives(r request, accepted bool) *modelPart {
	for _, p := range m.parts {
		if r.params.Data+r.params.StatusText == p.mark && !p.arrived {
			p.arrived, p.rejected = true, !accepted
			return p
		}
	}
	return nil
}

// endsByBridge checks that the bridge may end a response, and how.
func (c *cli) endsByBridge(m *modelCall, r request, head, fails bool) {
	if !m.ending && !m.endable() && c.w.refused.Load() == 0 {
		c.w.failures = append(c.w.failures, fmt.Sprintf("the bridge ends the response %s, which its owner %q was giving: %s", m.id, m.owner, r.params.Data))
	}
	if fails && !slices.ContainsFunc(m.parts, func(p *modelPart) bool { return p.head }) {
		c.w.failures = append(c.w.failures, fmt.Sprintf("the bridge ends the response %s without a status", m.id))
	}
	m.ending = true
	status := statusRefused
	if m.broken && !m.left && !m.failed && !m.silent() {
		status = statusBroken
	}
	switch body := r.params.Data; {
	case head && r.params.Status != status && !(m.broken && r.params.Status == statusBroken):
		c.w.failures = append(c.w.failures, fmt.Sprintf("the bridge ends the response %s with the status %d, not %d", m.id, r.params.Status, status))
	case !head && !fails && (!r.params.End || !strings.Contains(body, "error")):
		c.w.failures = append(c.w.failures, fmt.Sprintf("the bridge gives the response %s the body %s", m.id, body))
	}
}

// infer has a caller, mostly the owner of the last model call, give a part of its response: the next one, or a wrong one.
func (w *world) infer(n int) {
	w.mu.Lock()
	if len(w.models) == 0 || w.life.ended != nil {
		w.mu.Unlock()
		return
	}
	m, by := w.models[len(w.models)-1-n/12%min(2, len(w.models))], ""
	switch s := w.seatOf(n); {
	case m.taken && n%7 < 5:
		by = m.owner
	case s != nil:
		by = s.id
	}
	if m.underway() || by != "" && !slices.ContainsFunc(w.seats, func(s *seat) bool { return s.id == by && s.presence == present }) {
		w.mu.Unlock()
		return
	}
	begun := slices.ContainsFunc(m.parts, func(p *modelPart) bool { return p.head && (p.accepted || p.rejected) })
	fails := n%9 == 7
	p := &modelPart{mark: fmt.Sprintf("part%d.", len(m.parts)), head: !fails && !begun != (n%11 == 10), end: n%4 == 3}
	part := session.ModelPart{RequestID: m.id, Head: p.head, End: p.end}
	switch {
	case p.head:
		p.end, part.End = false, false
		part.Params.Set("status", json.RawMessage(`200`))
		part.Params.SetString("statusText", p.mark)
	case fails:
		p.end, part.End, part.Failure = true, true, true
		part.Params.SetString("data", p.mark)
		part.Params.Set("error", json.RawMessage(`{"message":"broken"}`))
	default:
		part.Params.SetString("data", p.mark)
		part.Params.SetBool("end", p.end)
	}
	want, sure := w.expectModel(m, by, begun, p.head, part.Failure)
	m.parts = append(m.parts, p)
	for id, a := range w.callbacks {
		a.elsewhere = a.elsewhere || id == m.request(0)
	}
	if m.taken && (by == m.owner || by == "") && !m.silent() {
		m.heard = time.Now()
	}
	l, since := w.life, w.s.Journal().Last()
	w.note("%q gives the response %s the part %s, head %v, end %v", by, m.id, p.mark, p.head, p.end)
	w.mu.Unlock()
	w.do(func() error { return w.respond(l, m, p, part, by, want, sure, since) })
}

// usable reports whether callers can answer. The caller holds the world's lock.
func (w *world) usable() bool { return w.lives(w.life) && w.cli != nil && w.cli.loaded }

// seatOf is a participant that is there; nil for a caller that is none.
func (w *world) seatOf(n int) *seat {
	if len(w.seats) > 0 && n%5 != 4 && w.seats[n%2].presence == present {
		return w.seats[n%2]
	}
	return nil
}

// expectModel is what a caller must be told who gives a part, and whether that is sure. The caller holds the world's lock.
func (w *world) expectModel(m *modelCall, by string, begun, head, failure bool) (want fault.Reason, sure bool) {
	pending := w.callbacks[m.request(0)] != nil && w.callbacks[m.request(0)].open
	sure = w.usable() && w.disconnects == 0 && m.process == w.cli && !m.endable() && (m.taken || pending)
	switch {
	case m.process != w.cli: // of which the session knows when it has another one
		return fault.CallbackNotFound, w.usable()
	case m.over || m.cancelled && m.replied == m.sent:
		return fault.CallbackNotFound, w.usable()
	case m.cancelled:
		return fault.None, false
	case m.taken && by != "" && by != m.owner:
		return fault.CallbackResolved, sure
	case head == begun && !(failure && !begun):
		return fault.AnswerInvalid, sure
	}
	return fault.None, sure
}

// respond gives a part of a model's response, and checks what the caller is told.
func (w *world) respond(
	l *life, m *modelCall, p *modelPart, part session.ModelPart, by string, want fault.Reason, sure bool, since journal.Position,
) error {
	crashes, began := w.crashes, time.Now()
	at, err := l.s.Models().Respond(l.ctx, by, part)
	w.mu.Lock()
	defer w.mu.Unlock()
	p.over, p.accepted = true, err == nil
	w.note("the part %s of the response %s: %v", p.mark, m.id, err)
	if !w.lives(l) || w.crashes != crashes {
		return nil
	}
	reason := fault.ReasonOf(err)
	switch {
	case err == nil && (!p.arrived || p.rejected):
		return fmt.Errorf("the part %s of the response %s is said to be accepted, and the CLI has it: %v", p.mark, m.id, p.arrived)
	case err == nil && at.Before(since):
		return fmt.Errorf("the part %s of the response %s is accepted at %v, before %v", p.mark, m.id, at, since)
	case m.hung, reason == fault.Timeout && time.Since(began) >= acceptance: // the CLI takes too long
		return nil
	case p.rejected && reason != fault.CallbackResolved:
		return fmt.Errorf("the CLI does not take the part %s of the response %s, and its caller is told: %w", p.mark, m.id, err)
	case sure && want != reason && (!p.rejected || want == fault.CallbackNotFound):
		return fmt.Errorf("the caller of the part %s of the response %s must be told %q, and is told: %w", p.mark, m.id, want, err)
	case reason == fault.AnswerInvalid, reason == fault.CallbackResolved, reason == fault.CallbackNotFound, w.isGone(err),
		reason == fault.RuntimeLost && m.process != w.cli:
		return nil
	}
	return err
}

// finishModels has callers give what is left of the responses.
func (w *world) finishModels() {
	w.mu.Lock()
	c := w.cli
	waits := c != nil && c.asksModel() != nil
	w.mu.Unlock()
	if waits {
		w.infer(3)
		synctest.Wait()
	}
}

// modelMethod reports whether a method is about a model call.
func modelMethod(method string) bool { return strings.HasPrefix(method, "llmInference.") }

// modelLane keeps the requests about a model call in order, as package fleet does it.
func modelLane(r *rpcconn.Request) string {
	var p struct{ RequestID string }
	if modelMethod(r.Method) {
		_ = json.Unmarshal(r.Params, &p) // the model's object
	}
	return p.RequestID
}

// modelRequest passes a request about a model call on, as package fleet does it.
func (rt *runtime) modelRequest(ctx context.Context, id string, q *rpcconn.Request) (json.RawMessage, error) {
	if q.Method == callback.ModelRequestStart {
		return rt.life.s.Models().Start(ctx, rt, id, q.Params)
	}
	return rt.life.s.Models().Chunk(ctx, id, q.Params)
}
