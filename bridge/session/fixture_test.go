package session

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// fixture is one session on a fake CLI: the host, and the runtime too.
type fixture struct {
	t      *testing.T
	script fakecli.Script
	home   string
	s      *Session
	tasks  sync.WaitGroup
	ctx    context.Context

	// reader reads the journal from its beginning; seen is what has not been awaited yet.
	reader *journal.Reader
	signal chan struct{}
	seen   []*journal.Record

	mu    sync.Mutex
	cli   *fakecli.CLI
	rt    *fakeRuntime
	lives int
	asked atomic.Int64
	// dirtied is called, with the session's lock held, when the session is to be saved.
	dirtied func()
	// started counts the calls that no goroutine waited for.
	started atomic.Int64
	epoch   atomic.Uint64
	done    []bridgev1.SessionChange
	log     *slog.Logger
	// names are the names of the CLI's own tools and commands.
	names *config.BuiltIns
	// draining makes the runtime refuse the session once.
	draining atomic.Bool
}

// fakeRuntime is the connection to one life of the fake CLI.
type fakeRuntime struct {
	r    *fixture
	cli  *fakecli.CLI
	conn *rpcconn.Conn
	dead atomic.Pointer[error]
	told chan struct{}
	// routed is set while the session gets its events.
	routed atomic.Bool
}

func newFixture(t *testing.T, script fakecli.Script) *fixture {
	t.Helper()
	r := &fixture{t: t, script: script, home: t.TempDir()}
	ctx, cancel := context.WithCancel(context.Background())
	r.ctx = ctx
	r.s = New(Config{ID: "s1", Host: r, Epoch: 7, Encode: func(*journal.Record, journal.Form) []byte { return nil }})
	r.signal = make(chan struct{}, 1)
	r.reader, _ = r.s.Journal().NewReader(journal.Position{}, true, func() {
		select {
		case r.signal <- struct{}{}:
		default:
		}
	})
	t.Cleanup(func() {
		r.mu.Lock()
		cancel() // no task begins after this, also of events that still arrive
		r.mu.Unlock()
		r.tasks.Wait()
		r.crash()
	})
	return r
}

// Runtime implements Host: the fake CLI that lives, or a new one.
func (r *fixture) Runtime(context.Context) (Runtime, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rt == nil {
		r.lives++
		r.cli = fakecli.New(fakecli.Options{Script: r.script, Home: r.home})
		rt := &fakeRuntime{r: r, cli: r.cli, told: make(chan struct{})}
		rt.conn = rpcconn.New(r.cli.Connect(), rpcconn.Options{Event: rt.event, Request: rt.request})
		r.rt = rt
	}
	return r.rt, nil
}

// crash ends the CLI's life, and tells the session.
func (r *fixture) crash() {
	r.mu.Lock()
	cli, rt := r.cli, r.rt
	r.cli, r.rt = nil, nil
	r.mu.Unlock()
	if cli == nil {
		return
	}
	cli.Close()
	<-rt.conn.Done()
	cause := errors.New("crashed")
	rt.dead.Store(&cause)
	r.s.loader.RuntimeLost(rt, cause)
	close(rt.told)
}

// Stopped implements Host.
func (r *fixture) Stopped() <-chan struct{} { return r.ctx.Done() }

// Go implements Host.
func (r *fixture) Go(f func(context.Context)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return false
	}
	r.tasks.Go(func() { f(r.ctx) })
	return true
}

// Spawn implements Host.
func (r *fixture) Spawn(f func()) { go f() }

// Changed implements Host.
func (r *fixture) Changed(c bridgev1.SessionChange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, c)
}

// Store implements Host.
func (*fixture) Store() error { return nil }

// MarkDirty implements Host.
func (r *fixture) MarkDirty() {
	if r.dirtied != nil {
		r.dirtied()
	}
}

// Refresh implements Host. Hosts of other sessions have their own.
func (r *fixture) Refresh() {
	if r.s != nil {
		r.refresh(r.s)
	}
}

func (r *fixture) refresh(s *Session) {
	r.Go(func(ctx context.Context) { _ = s.participants.Refresh(ctx) }) // the next load makes up for a failure
}

// Watched, LabelsChanged, CallbackRequested and CallbackResolved implement Host.
func (r *fixture) BuiltIns(context.Context) *config.BuiltIns { return r.names }

func (r *fixture) Watched(map[string]string) []string  { return nil }
func (r *fixture) LabelsChanged()                      {}
func (r *fixture) CallbackRequested(*callback.Pending) {}
func (r *fixture) CallbackResolved(Resolved)           {}

// Epoch implements Host: later than New's.
func (r *fixture) Epoch() uint64 { return 7 + r.epoch.Add(1) }

func (r *fixture) Logger() *slog.Logger { return cmp.Or(r.log, slog.New(slog.DiscardHandler)) }

func (rt *fakeRuntime) Call(ctx context.Context, method string, params []byte, opts ...rpcconn.CallOption) (json.RawMessage, error) {
	return rt.conn.Call(ctx, method, params, opts...)
}

// Start implements starter.
func (rt *fakeRuntime) Start(
	_ context.Context, method string, params []byte, limit time.Duration, done func(json.RawMessage, error),
	opts ...rpcconn.CallOption,
) error {
	rt.r.started.Add(1)
	return rt.conn.Start(method, params, limit, done, opts...)
}

func (rt *fakeRuntime) Route(*Session) error {
	if rt.r.draining.CompareAndSwap(true, false) {
		return ErrNotAdmitted
	}
	rt.routed.Store(true)
	return nil
}
func (rt *fakeRuntime) Unroute(*Session)       { rt.routed.Store(false) }
func (rt *fakeRuntime) TurnCompleted()         {}
func (rt *fakeRuntime) Traces() bool           { return false }
func (rt *fakeRuntime) Ended() <-chan struct{} { return rt.told }
func (rt *fakeRuntime) Version() string        { return rt.r.script.Version }
func (rt *fakeRuntime) Err() error {
	if err := rt.dead.Load(); err != nil {
		return *err
	}
	return nil
}

func (rt *fakeRuntime) event(body []byte) {
	f, err := translate.ScanFrame(body)
	if err == nil && rt.routed.Load() {
		rt.r.s.Ingest(event.Record(f.Event, bytes.Clone(f.Event.Raw), nil), time.Now())
	}
}

func (rt *fakeRuntime) request(ctx context.Context, q *rpcconn.Request) (json.RawMessage, error) {
	return rt.r.s.callbacks.AskMethod(ctx, fmt.Sprint("q", rt.r.asked.Add(1)), q.Method, q.Params)
}

// open creates the session.
func (r *fixture) open(o Opening) Joined {
	r.t.Helper()
	joined, err := r.s.loader.Create(r.t.Context(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	return joined
}

// join makes a caller a participant.
func (r *fixture) join(b roster.Brings) (*roster.Participant, error) {
	joined, err := r.s.participants.Join(r.t.Context(), Joining{Brings: b})
	return joined.Participant, err
}

// received lists the parameters of the calls of a method that the CLI got.
func (r *fixture) received(method string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cli == nil {
		return nil
	}
	for _, e := range r.cli.Log() {
		if e.Kind == fakecli.EntryReceived && e.Type == method {
			var m struct{ Params json.RawMessage }
			if err := json.Unmarshal(e.Body, &m); err != nil {
				r.t.Fatal(err)
			}
			out = append(out, string(m.Params))
		}
	}
	return out
}

// last is the newest of received.
func (r *fixture) last(method string) string {
	r.t.Helper()
	all := r.received(method)
	if len(all) == 0 {
		r.t.Fatalf("the CLI got no %s", method)
	}
	return all[len(all)-1]
}

// await reads the journal, notes included, until one is found that was not found before.
func (r *fixture) await(what string, found func(*journal.Record) bool) *journal.Record {
	r.t.Helper()
	for {
		for i, rec := range r.seen {
			if found(rec) {
				r.seen = slices.Delete(r.seen, i, i+1)
				return rec
			}
		}
		records, gap := r.reader.Next(nil, 1<<20)
		if r.seen = append(r.seen, records...); len(records) > 0 || gap != nil {
			continue
		}
		select {
		case <-r.signal:
		case <-time.After(20 * time.Second):
			r.t.Fatalf("%s never came", what)
		}
	}
}

func (r *fixture) awaitEvent(eventType string) *journal.Record {
	r.t.Helper()
	return r.await(eventType, func(rec *journal.Record) bool { return rec.Type == eventType })
}

// message is a prompt for the CLI.
func message(text string) Message {
	var m Message
	m.Params.SetString("prompt", text)
	return m
}

func (r *fixture) send(m Message) Sent {
	r.t.Helper()
	sent, err := sendAndAwaitReply(r.t.Context(), r.s, m)
	if err != nil {
		r.t.Fatal(err)
	}
	return sent
}

// sendAndAwaitReply sends a message and waits until the CLI has accepted it.
func sendAndAwaitReply(ctx context.Context, s *Session, m Message) (Sent, error) {
	return async.Wait(ctx, func(done func(Sent, error)) { s.sender.Start(ctx, m, done) })
}

func object(t *testing.T, text string) jsonobj.Object {
	t.Helper()
	o, err := jsonobj.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func tools(names ...string) []config.Tool {
	var list []config.Tool
	for _, n := range names {
		list = append(list, config.Tool{Name: n, JSON: json.RawMessage(fmt.Sprintf(`{"name":%q}`, n))})
	}
	return list
}

func wantReason(t *testing.T, err error, want fault.Reason) {
	t.Helper()
	if got := fault.ReasonOf(err); got != want {
		t.Errorf("error %v has reason %q, want %q", err, got, want)
	}
}

func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("no %s in %s", p, text)
		}
	}
}

func lacks(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if strings.Contains(text, p) {
			t.Errorf("%s in %s", p, text)
		}
	}
}

// members is an answer of an event's kind.
func answer(text string) callback.Reply { return callback.Reply{Members: json.RawMessage(text)} }
