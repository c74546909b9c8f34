package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc/metadata"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// sessionCount is how many sessions a schedule has, each with a caller, two readers and one who answers.
const sessionCount = 3

// finalPrefix begins the last prompt of a session.
const finalPrefix = "final of "

// TestSchedules plays the schedules that the environment asks for.
func TestSchedules(t *testing.T) {
	count, first := number(t, "CLUSTER_SCHEDULES", 0), number(t, "CLUSTER_SEED", 1)
	withCLI := number(t, "CLUSTER_REAL", 0)
	if count == 0 && withCLI == 0 {
		t.Skip("CLUSTER_SCHEDULES and CLUSTER_REAL say how many schedules are played: make chaos-cluster")
	}
	checked := &tally{}
	t.Cleanup(func() { t.Log(checked) }) // after all schedules
	for seed := first; seed < first+count; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel() // most of a schedule is waiting
			play(t, Draw(seed, false), checked)
		})
	}
	for seed := first; seed < first+withCLI; seed++ {
		t.Run(fmt.Sprint("real/seed=", seed), func(t *testing.T) {
			t.Parallel()
			play(t, Draw(seed, true), checked)
		})
	}
}

func number(t *testing.T, env string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", env, err)
	}
	return n
}

// world is a schedule being played.
type world struct {
	seed     uint64
	timing   Timing
	model    *model // nil with the fake CLI
	replicas []*replica
	nats     []*natsServer

	observer *observer

	mu      sync.Mutex
	faults  []string
	prompts []prompt
	callers uint64
}

// fail records a violation.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// prompted notes a prompt, which is repeated at the end.
func (w *world) prompted(p prompt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prompts = append(w.prompts, p)
}

// caller returns a new caller, with random numbers of the seed.
func (w *world) caller() *caller {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.callers++
	return &caller{world: w, through: w.replicas, rng: rand.New(rand.NewPCG(w.seed, w.callers))}
}

// play plays a schedule, checks it, and counts its histories.
func play(t *testing.T, p Plan, checked *tally) {
	t.Log(p)
	begin := time.Now()
	w := &world{seed: p.Seed, timing: p.Timing, observer: &observer{begin: begin}}
	if p.Real {
		w.model = newModel(t)
	}
	w.nats = startNATS(t, w.fail)
	ca := servertest.NewCA(t)
	var supervisors sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	end := sync.OnceFunc(func() { cancel(); supervisors.Wait(); w.observer.watching.Wait() })
	defer end()
	for n := range replicas {
		var links []*link
		var urls []string
		for _, s := range w.nats {
			k := newLink(t, s.address())
			links, urls = append(links, k), append(urls, "nats://"+k.address())
		}
		r := newReplica(t, n, strings.Join(urls, ","), ca, w.fail, "--cluster-lease", p.Timing.Lease.String(),
			"--drain-grace", p.Timing.DrainGrace.String(), "--idle-unload", p.Timing.Unload.String())
		r.link(t, links)
		r.record = func(method string, request, reply any, header metadata.MD, from time.Time, err error) {
			w.observer.record(r.n, method, request, reply, header, from, err)
		}
		if p.Real {
			w.model.attach(r)
		}
		w.replicas = append(w.replicas, r)
		t.Cleanup(func() { _ = r.conn.Close() })
		supervisors.Go(func() { r.supervise(ctx) })
	}
	if err := w.observer.watch(ctx, jetStream(t, w.nats)); err != nil {
		t.Fatal(err)
	}
	record := w.run(t.Context(), p)
	w.readLogs(t, record)
	end()
	record.Faults = w.faults
	found := append(record.Check(), checked.checkHistories(t, record, historyBase(p), historyLimit)...)
	for _, v := range found {
		t.Error(v)
	}
	events := 0
	for _, l := range record.Lists {
		events += len(l.Events)
	}
	appends, answers := 0, len(record.Accepted)+len(record.Results)
	for _, a := range record.Appends {
		appends += len(a)
	}
	t.Logf("%v: %d prompts, %d events listed, %d messages in NATS, %d answers, %d violations",
		time.Since(begin).Round(time.Second), len(w.prompts), events, appends, answers, len(found))
	if appends == 0 || events == 0 || answers == 0 {
		t.Error("nothing was compared")
	}
	for _, r := range w.replicas {
		if len(found) > 0 {
			t.Logf("replica %d: %s", r.n, r.dir)
		} else {
			_ = os.RemoveAll(r.dir)
		}
	}
}

// run plays the load and the faults, heals everything, and returns what came of it.
func (w *world) run(ctx context.Context, p Plan) *Record {
	record := &Record{}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var beside, load sync.WaitGroup // goroutines that end after the load, and with the faults
	defer beside.Wait()
	defer stop()
	over := make(chan struct{})
	var followers []*follower
	for n := range sessionCount {
		id := fmt.Sprintf("s%d", n)
		w.caller().create(ctx, id)
		for i := range 2 {
			f := &follower{name: fmt.Sprint("reader ", i), session: id}
			followers = append(followers, f)
			by := w.caller()
			beside.Go(func() { by.read(reading, f) })
		}
		mover := w.caller()
		beside.Go(func() { mover.move(reading, id) })
		by, other := w.caller(), w.caller()
		beside.Go(func() { by.answer(reading, id) })
		load.Go(func() { other.converse(ctx, over, id, id) })
	}
	w.strike(ctx, p)
	close(over)
	load.Wait()
	w.settle(ctx)
	ends := map[string]Position{}
	for _, l := range w.lists(ctx) {
		if n := len(l.Events); n > 0 {
			ends[l.Session] = l.Events[n-1].At
		}
	}
	awaitReaders(ctx, ends, followers)
	stop()
	beside.Wait()
	for _, f := range followers {
		record.Readers = append(record.Readers,
			Reader{Name: f.name, Session: f.session, Through: ends[f.session], Events: f.shown})
	}
	record.Lists = w.lists(ctx)
	return record
}

// strike carries the actions out, each at its time, and returns when all targets are back.
func (w *world) strike(ctx context.Context, p Plan) {
	begin := time.Now()
	var striking sync.WaitGroup
	for _, a := range p.Actions {
		striking.Go(func() {
			pause(ctx, time.Until(begin.Add(a.At)))
			switch a.Fault {
			case StopNATS, KillNATS, FreezeNATS, FillNATS, PartNATS:
				w.nats[a.Target].strike(ctx, a)
			case CutNATS, CutPeers, SlowNATS:
				w.replicas[a.Target].cut(ctx, a)
			default:
				w.replicas[a.Target].strike(ctx, a)
				pause(ctx, time.Until(begin.Add(a.end())))
			}
		})
	}
	striking.Wait()
}

// settle repeats each prompt, so that its caller learns what became of it, and has a last turn in each session.
func (w *world) settle(ctx context.Context) {
	c := w.caller()
	for _, p := range w.prompts {
		c.send(ctx, p)
	}
	for n := range sessionCount {
		id := fmt.Sprintf("s%d", n)
		_ = c.try(ctx, "the last turn of "+id, func(ctx context.Context, r *replica) error {
			out, err := r.sessions().SendAndWait(ctx, &bridgev1.SendAndWaitRequest{
				SessionId: id, RequestId: "final", Prompt: &bridgev1.Prompt{Text: finalPrefix + id},
			})
			if s := out.GetOutcome().GetStatus(); err == nil && s != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
				w.fail("the last turn of %s ended with %v", id, s)
			}
			return err
		}, nil)
	}
}

// lists lists the events of each session through each replica. An idle session may be unloaded or moved meanwhile, and
// get an event of it: the lists are taken again until all replicas show the same, for some time.
func (w *world) lists(ctx context.Context) (all []List) {
	for n := range sessionCount {
		id := fmt.Sprintf("s%d", n)
		var of []List
		for range 5 {
			of = nil
			for _, r := range w.replicas {
				from := w.observer.since(time.Now())
				events := w.listAt(ctx, r, id)
				of = append(of, List{Span{from, w.observer.since(time.Now())}, r.n, id, events})
			}
			differs := func(l List) bool { return !slices.Equal(l.Events, of[0].Events) }
			if !slices.ContainsFunc(of, differs) {
				break
			}
			pause(ctx, time.Second)
		}
		all = append(all, of...)
	}
	return all
}

// listAt lists the events of a session through one replica.
func (w *world) listAt(ctx context.Context, r *replica, id string) (events []Event) {
	only := w.caller()
	only.through = []*replica{r}
	call := func(ctx context.Context, r *replica) (err error) {
		events, err = list(ctx, r, id)
		return err
	}
	_ = only.try(ctx, fmt.Sprintf("ListEvents through replica %d", r.n), call, nil)
	return events
}

// awaitReaders waits until each reader has come to an end of its session. A reader that does not violates its promise.
func awaitReaders(ctx context.Context, ends map[string]Position, followers []*follower) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, f := range followers {
		for ctx.Err() == nil && !f.reached(ends[f.session]) {
			pause(ctx, 50*time.Millisecond)
		}
	}
}

// readLogs reads the messages of the sessions' logs in NATS, and the logs of the fake CLIs or of the real ones' model.
func (w *world) readLogs(t *testing.T, record *Record) {
	t.Helper()
	if w.model != nil {
		if err := w.model.read(record); err != nil {
			t.Error(err)
		}
	}
	js := jetStream(t, w.nats)
	if err := w.observer.caughtUp(t.Context(), js); err != nil {
		t.Error(err)
	}
	record.Observations = w.observer.observations()
	for _, r := range w.replicas {
		if w.model == nil {
			record.Accepted = append(record.Accepted, w.observer.accepted(t, r)...)
		}
	}
	for deadline := time.Now().Add(patience); ; pause(t.Context(), 100*time.Millisecond) {
		appends, err := readAppends(t.Context(), js)
		if err == nil {
			record.Appends = appends
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the logs in NATS cannot be read: %v", err)
		}
	}
}

// readAppends reads the messages of all sessions' logs. It fails while NATS has no leader.
func readAppends(ctx context.Context, js jetstream.JetStream) (map[string][]Append, error) {
	stream, err := js.Stream(ctx, "copilot_log")
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string][]Append{}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // it was purged
		}
		if err != nil {
			return nil, err
		}
		const head = 3 + 8 // version, kind, flag and writer come before the term: natslog/part.go
		if len(m.Data) <= head {
			return nil, fmt.Errorf("message %d has no term", seq)
		}
		term, _ := binary.Uvarint(m.Data[head:])
		out[m.Subject] = append(out[m.Subject], Append{seq, term})
	}
	return out, nil
}
