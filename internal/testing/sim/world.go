package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"

	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
)

// prompt is a message of a caller: what the model makes of it, and what the caller was told.
type prompt struct {
	steps     int    // tools that its turn uses
	calls     string // the kinds of tools that each step calls; "" for one of the CLI
	fails     bool
	immediate bool
	// fates are the outcomes that the CLI gave it, the latest last.
	fates []string
	// late: the abort came between the end of its turn and the rest of the session, so that either outcome is right.
	late bool
	// unended: the bridge has aborted its turn, which could never end. The record does not say who did that.
	unended bool
	// doubtful: an abort removed it before the bridge had the reply to it. A bridge that ends then cannot know that.
	doubtful bool
	// abortable: a caller called Abort after the prompt was sent.
	abortable bool
	// abandoned: its caller has gone before it knew whether the message is accepted.
	abandoned bool
	// edited: a caller has called a method that changes the CLI's queue before its outcome was known. withdrawn: the CLI has removed it.
	edited, withdrawn bool
	// removed: a caller was told that the CLI has removed it.
	removed bool
	// abort is the id of the abort that removed it, whose event the record gets. unread: the CLI had not sent the reply to the
	// message: time tells the bridge that the message is gone.
	abort  string
	unread bool
	// inMemory: its caller was told that it is not stored.
	inMemory bool
	form     form
	n        int              // its number
	before   journal.Position // the end of the journal before it was sent
	// request is the id of the caller's request; "" if it has none.
	request string
	// given is how often a CLI process has received it. began: one has taken it up.
	given int
	began bool
	// crashed: a CLI process ended since it was sent, and before the caller knew its outcome.
	crashed bool
	// disconnected: a caller has disconnected the session before the caller knew its outcome.
	disconnected bool
	// hung: the CLI hung before the caller knew its outcome.
	hung bool
	// wentOn: a later CLI process has ended its turn.
	wentOn bool
	// stuck: the model did not answer before its end.
	stuck bool
	// cut: the history had it. settled: its end was known then.
	cut, settled bool

	// accepted are the prompts that the bridge had accepted when this one was sent.
	accepted map[int]bool
	// lost: its replica had lost the lease before the caller knew its outcome.
	lost bool
	// since is the end of the journal when it was sent.
	since journal.Position

	sent    bool
	id      string // of the message that the caller was told
	event   string // the id of the event that says that the agent has taken it up
	turn    int    // the agent's turn that has it
	err     error
	outcome turn.Outcome
	over    bool
}

// world is one session of the bridge with its callers and CLI processes. Time is that of a synctest bubble. A run does one
// thing at a time and lets the bridge come to rest in between, so that equal runs behave alike.
type world struct {
	*life
	mu      sync.Mutex // guards what goroutines of the bridge reach: all that follows but the disk
	disk    disk
	cli     *cli
	rt      *runtime
	prompts []*prompt
	// continuation is the bridge's own prompt, which may be given several times.
	continuation prompt
	// continuations is how often a process has received it since the last turn ended of which the bridge has saved the end.
	continuations int
	// rested: the session has come to rest, and that is not saved yet.
	rested        bool
	ids           uint64
	interaction   int
	epoch         uint64
	crashes       int
	aborts        int // that the agent has carried out
	stop          stop
	calls         []*call // of callers, that have not returned
	failures      []string
	variant       variant
	clustered     bool // the bridge is a replica of a cluster
	owner         ownership
	of            *world // see ownership.aside; else nil
	room          *room
	refused       atomic.Int64 // callbacks for which there was no room
	callbacks     map[string]*asking
	order         []*asking
	answers       int
	hooks         []hookReply
	seats         []*seat
	changes       int             // of who participates
	saved         json.RawMessage // the state of the session as it was saved last
	state         json.RawMessage // its state when that was last looked at
	dirty         bool
	idle          int  // how often time has gone by since the bridge or the CLI did something
	hangs         bool // the CLI process does nothing
	disconnects   int  // by callers
	disconnecting int  // of these, those that have not returned
	restarts      int
	others        []int // what other programs are to change in the history
	cuts          []cut
	deletion      deletion
	began         time.Time // the process of the bridge
	failed        bool      // a disk has failed
	release       func()    // of the disk of the journal, which hangs; else nil
	reader        reader
	epochs        epochs
	streamed      streamed
	skew          time.Duration // of the CLI's clock
	noted         noted
	turns         turns
	watchers      watchers
	handover      handover
	stalls        []stalled
	models        []*modelCall // of all processes
	asides        int
	completed     int // turns, by CLI processes, as the bridge counts them
	clients       clients
	settings      settings
	provider      provider
	fuse          fuse
	watching      watching
	watcher       atomic.Bool       // the caller is there
	satellites    []*satellite      // of all processes
	abstaining    int               // callers that have abstained, and have not been told of it
	invoking      bool              // a caller waits for the end of a command
	trace         func(line string) // nil without a trace
	drawn         *uint64           // see lot
}

func newWorld(v variant, clustered bool) *world {
	w := &world{variant: v, clustered: clustered && v > 0, callbacks: map[string]*asking{}, streamed: streamed{pieces: map[string]*piece{}},
		reader: reader{settled: map[string]bool{}, ever: map[journal.ID]bool{}}}
	w.noted = newNoted()
	w.owner.emitted = map[journal.ID]stored{}
	w.clients.now, w.clients.saved = []string{""}, []string{""}
	w.settings, w.provider = newSettings(), newProvider(v)
	w.life = w.newLife(nil)
	w.do(func() error {
		_, err := w.s.Loader().Create(w.ctx, v.opening())
		return err
	})
	w.follow()
	w.settle(func() bool { return w.s.Loader().State() == session.Loaded })
	w.fill()
	w.save()
	return w
}

// close ends the world and all that runs in it.
func (w *world) close() {
	w.cancel()
	w.mu.Lock()
	rt := w.kill()
	w.life.ended = &disks{}
	w.mu.Unlock()
	if rt != nil {
		w.tell(rt, 0)
	}
	w.life.close()
}

func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

// note adds a line to the run's trace. The caller holds the world's lock.
func (w *world) note(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%s "+format, append([]any{time.Now().Format("15:04:05.000")}, args...)...))
	}
}

// lot decides what may come either way: the number of ids, or what is drawn.
func (w *world) lot() uint64 {
	if w.drawn != nil {
		return *w.drawn
	}
	return w.ids
}

func (w *world) uuid() string {
	w.ids++
	return "00000000-0000-4000-8000-" + strconv.FormatUint(1<<48+w.ids, 16)[1:]
}

// timestamp is the form of the times of events.
const timestamp = "2006-01-02T15:04:05.000Z"

func (w *world) now() string { return time.Now().UTC().Add(w.skew).Format(timestamp) }

// ended notes the outcome that the CLI has given a prompt.
func (w *world) ended(n int, fate string) {
	p := w.prompt(n)
	p.fates = append(p.fates, fate)
}

// prompt returns a prompt of a caller, or that of the bridge itself.
func (w *world) prompt(n int) *prompt {
	if n == continuation {
		return &w.continuation
	}
	return w.prompts[n]
}

// do runs f beside the run. Its error is a failure of the run.
func (w *world) do(f func() error) {
	l := w.life
	l.tasks.Go(func() {
		if err := f(); err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.lives(l) && !w.lacks(err) {
				w.failures = append(w.failures, err.Error())
			}
		}
	})
	synctest.Wait()
}

// call is a call of a caller, who may go before it returns.
type call struct {
	context.Context
	cancel context.CancelFunc
	// abandon notes that the caller has gone.
	abandon func()
}

// begin begins a call of a caller.
func (w *world) begin(abandon func()) *call {
	c := &call{abandon: abandon}
	c.Context, c.cancel = context.WithCancel(w.ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, c)
	return c
}

// returned notes that a call has returned. The caller holds the world's lock.
func (w *world) returned(c *call) {
	w.calls = slices.DeleteFunc(w.calls, func(o *call) bool { return o == c })
	c.cancel()
}

// abandon has the caller of a call go.
func (w *world) abandon(n int) {
	w.mu.Lock()
	if len(w.calls) == 0 {
		w.mu.Unlock()
		return
	}
	c := w.calls[n%len(w.calls)]
	w.note("a caller goes")
	c.abandon()
	w.returned(c)
	w.mu.Unlock()
	synctest.Wait()
}

// send has a caller send a prompt.
func (w *world) send(p *prompt) {
	n := len(w.prompts)
	p.n, p.before, p.accepted = n, w.s.Journal().Appended(), map[int]bool{}
	p.since = p.before
	w.mu.Lock()
	p.abortable, p.disconnected = w.stop.underway > 0, w.disconnecting > 0
	for before, earlier := range w.prompts {
		p.accepted[before] = earlier.sent
	}
	w.prompts = append(w.prompts, p)
	if w.owner.lost {
		of := *p
		w.owner.aside.prompts = append(w.owner.aside.prompts, &of)
		p.crashed, p.lost = true, true
	}
	w.mu.Unlock()
	m := p.message(n)
	l := w.life
	over := func(out turn.Outcome, err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.lives(l) { // its caller has lost the connection
			return
		}
		if p.over {
			w.failures = append(w.failures, fmt.Sprintf("P%d has two outcomes", n))
		}
		p.over, p.outcome, p.err = true, out, err
		w.note("P%d: %s %v", n, p, err)
		w.toldOutcome(p)
	}
	c := w.begin(func() { p.abandoned = true })
	w.s.Sender().Start(c, m, func(sent session.Sent, err error) {
		w.mu.Lock()
		w.returned(c)
		w.mu.Unlock()
		if err != nil {
			over(turn.Outcome{}, err)
			return
		}
		w.mu.Lock()
		if w.lives(l) {
			p.sent, p.id, p.inMemory = true, sent.MessageID, sent.InMemory
			w.checkAcknowledged(p)
			w.checkSent(p, sent)
			w.note("P%d is accepted as %s", n, p.id)
			w.acknowledged("the prompt "+p.id, func() bool {
				return w.savedEnd() || p.disconnected && w.disconnecting == 0 || w.outboxHas(p.id) || w.logHas(journal.Position{}, "user.message", p.id) || slices.Contains(p.fates, "ABORTED")
			})
		}
		w.mu.Unlock()
		w.point(l)
		if waiter := sent.Waiter; w.variant.continues() {
			l.await(l.s.Follow(waiter, sent.MessageID), over)
		} else {
			l.await(waiter, over)
		}
	})
	synctest.Wait()
}

// abort has a caller abort.
func (w *world) abort() {
	w.mu.Lock()
	given := map[*prompt]bool{}
	for _, p := range w.prompts {
		p.abortable, given[p] = p.abortable || !p.over, p.id != ""
	}
	crashes, l := w.crashes, w.life
	rests := w.cli == nil && len(w.calls) == 0 && !l.s.Awaited() && l.s.Callbacks().Registry().Len() == 0 && w.lives(l)
	turns, since := w.stop.begin(), l.s.Journal().Appended()
	w.mu.Unlock()
	abandoned := false
	c := w.begin(func() { abandoned = true })
	w.do(func() error {
		out, err := l.s.Sender().Abort(c, nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.returned(c)
		if w.lives(l) {
			w.stop.end(turns, err)
			if err == nil && out.Running {
				w.toldAbort(since, given)
			}
		}
		if w.crashes != crashes || abandoned || w.disconnects > 0 || w.isLeaving(err) || w.isRefused(err) { // a call of a process that has ended may fail
			return nil
		}
		return err
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if rests && w.cli != nil && w.lives(l) {
		w.failures = append(w.failures, "an abort has a process load a session that has nothing to end")
	}
}

// crash kills the CLI process, and has the bridge notice.
func (w *world) crash() {
	w.mu.Lock()
	rt := w.kill()
	w.mu.Unlock()
	if rt != nil {
		w.tell(rt, 0)
	}
	synctest.Wait()
}

// kill kills the CLI process. It returns the bridge's side of it; nil if there is none. The caller holds the world's lock.
func (w *world) kill() *runtime {
	if w.cli == nil || w.life.ended != nil {
		return nil
	}
	w.note("the CLI is killed")
	_ = w.cli.pipe.Close()
	w.cli.loseSatellites()
	forgets := w.cli.forgets()
	w.cli = nil
	w.crashes++
	w.stop.ends++
	w.stop.forgotten = w.stop.forgotten || forgets
	for _, p := range w.prompts {
		p.crashed = p.crashed || !p.over
	}
	return w.rt
}

// tell has the bridge handle the end of a CLI process, as package fleet does it, after a time. It loads the session again
// if it is wanted.
func (w *world) tell(rt *runtime, after time.Duration) {
	<-rt.conn.Done()
	rt.conn.Wait()
	select {
	case <-time.After(after):
	case <-rt.life.ctx.Done():
	}
	cause := errors.New("killed")
	w.mu.Lock()
	rt.err = cause
	w.mu.Unlock()
	before := rt.life.s.Snapshot()
	wanted := rt.life.s.Loader().RuntimeLost(rt, cause)
	w.checkWanted(rt.life, before, wanted)
	close(rt.told)
	w.mu.Lock()
	if w.rt == rt {
		w.rt = nil
	}
	wanted = wanted && w.lives(rt.life)
	w.mu.Unlock()
	if wanted {
		w.revive()
	}
}

// reviveTries bounds how often the bridge loads a session whose processes end meanwhile.
const reviveTries = 3

// revive loads the session again, as package fleet does it.
func (w *world) revive() {
	l := w.life
	l.tasks.Go(func() {
		var err error
		for range reviveTries {
			if _, err = l.s.Loader().Load(l.ctx); fault.ReasonOf(err) != fault.RuntimeLost {
				break
			}
		}
		if err != nil { // the continuation that may have reached one of the processes is given up, too
			w.mu.Lock()
			w.stop.forgotten = true
			w.mu.Unlock()
		}
		if l.ctx.Err() == nil {
			l.s.Watchdog().GiveUp(l.ctx, err)
		}
	})
}

// reload has the session loaded if something in it waits for that. A caller that comes back would do so. If interrupted turns
// are continued, the caller looks: the bridge may not know of a turn that it began last.
func (w *world) reload() {
	if w.s.Loader().State() == session.Unloaded &&
		(!w.s.Prompts().Outbox().Empty() || w.pending() > 0 || w.s.Awaited() || w.variant.continues()) {
		w.revive()
	}
}

// instant is the time between two steps of the CLI: what begins in different steps ends at different times.
const instant = time.Microsecond

// step has the CLI process do one of the things that it can do. It reports whether there was one.
func (w *world) step(choice int) bool {
	time.Sleep(instant)
	w.mu.Lock()
	if w.cli == nil {
		w.mu.Unlock()
		return false
	}
	steps := w.cli.steps()
	if len(steps) > 0 {
		w.idle = 0
		steps[choice%len(steps)]()
	}
	w.mu.Unlock()
	synctest.Wait()
	w.endLost()
	w.restart(choice)
	return len(steps) > 0
}

// also has the CLI process do something beside its steps.
func (w *world) also(does func(c *cli)) {
	w.mu.Lock()
	if w.cli != nil {
		does(w.cli)
	}
	w.mu.Unlock()
	synctest.Wait()
}

// catchUps is how often the CLI catches up before a long time goes by: a load asks it twice for what it waits for, and then
// answers follow.
const catchUps = 4

// pass lets time go by.
func (w *world) pass(d time.Duration) {
	if d > time.Second && !w.hangs {
		for range catchUps {
			w.also((*cli).catchUp)
		}
	}
	time.Sleep(d)
	w.s.Watchdog().Check()
	synctest.Wait()
	w.restart(0)
	w.saveAtRest()
	if d > maxRetry {
		w.checkKept()
	}
}

// hangs are the times for which a process hangs. The bridge kills one that hangs for longer than the last one.
var hangs = []time.Duration{4 * time.Second, 12 * time.Second, 31 * time.Second, 45 * time.Second}

// hang has the CLI process do nothing for a time, and end then, or go on.
func (w *world) hang(n int) {
	w.mu.Lock()
	w.note("the CLI hangs")
	for _, p := range w.prompts {
		p.hung = p.hung || !p.over
	}
	for _, m := range w.models {
		m.hung = m.hung || m.open() || m.underway()
	}
	w.hangs = true
	w.mu.Unlock()
	long := n % len(hangs)
	w.pass(hangs[long])
	w.hangs = false
	if long == len(hangs)-1 || n/len(hangs)%3 == 0 {
		w.crash()
	}
}

// maxSettling bounds the time in which everything that was begun must end, when the CLI works without delay.
const maxSettling = 15 * time.Minute

// bound is maxSettling with the time that callers may take.
func (w *world) bound() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	total := maxSettling
	for _, p := range w.prompts {
		total += time.Duration(p.steps*len(p.calls)) * limit
	}
	for _, s := range w.stalls {
		total += s.limit
	}
	total += time.Duration(len(w.models)) * 2 * limit
	return total
}

// settle has the CLI do what it can, and time pass, until something is true. It reports whether that came in time.
func (w *world) settle(until func() bool) bool {
	for began := time.Now(); !until(); {
		if w.step(0) {
			continue
		}
		if w.variant.answers() {
			w.answer(0)
			w.finishModels()
		}
		if time.Since(began) > w.bound() {
			return false
		}
		w.reload()
		w.pass(time.Second)
	}
	return true
}
