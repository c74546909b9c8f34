package participants

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/callbacks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/modelproxy"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// fixture is a session that is loaded in one runtime, which records its calls.
type fixture struct {
	sync.Mutex
	*Manager
	roster roster.Roster
	own    config.State
	// watched is what callers of WatchPending handle.
	watched config.Handling
	calls   []string
	refuse  error
	// saved and result are what the manager told the session.
	saved  int
	result string
	gone   bool
	ends   bool
	opened []*satellite
	tasks  sync.WaitGroup
}

// satellite is a connection that records its calls.
type satellite struct {
	calls  []string
	closed bool
}

func (s *satellite) Call(_ context.Context, method string, params []byte) (json.RawMessage, error) {
	s.calls = append(s.calls, method+string(params))
	return nil, nil
}
func (s *satellite) Close() { s.closed = true }

func (f *fixture) Usable() error {
	if f.gone {
		return errors.New("gone")
	}
	return nil
}
func (f *fixture) Settings() *config.State  { return &f.own }
func (f *fixture) HeadersReplaced() bool    { return false }
func (f *fixture) LoadedIn(Runtime) bool    { return !f.gone }
func (f *fixture) EndsWithLast() bool       { return f.ends }
func (f *fixture) Opened(r json.RawMessage) { f.result = string(r) }
func (f *fixture) MarkDirty()               { f.saved++ }
func (f *fixture) Watched() config.Handling { return f.watched }

// The fixture is also the runtime.
func (f *fixture) Version() string { return "1.0.102" }
func (f *fixture) Call(context.Context, string, []byte, ...rpcconn.CallOption) (json.RawMessage, error) {
	panic("calls go through Config.Call")
}
func (f *fixture) Satellite(context.Context, string, Asker) (roster.Satellite, error) {
	sat := &satellite{}
	f.opened = append(f.opened, sat)
	return sat, nil
}

func newFixture() *fixture {
	f := &fixture{}
	j := journal.New(journal.Config{Epoch: 1, Encode: func(*journal.Record, journal.Form) []byte { return nil }})
	logger := func() *slog.Logger { return slog.New(slog.DiscardHandler) }
	run := func(do func(context.Context)) bool {
		f.tasks.Go(func() { do(context.Background()) })
		return true
	}
	f.Manager = New(Config{
		Session: "s1", Lock: f, Tx: f, Roster: &f.roster, Journal: j, Models: modelproxy.New(modelproxy.Config{}),
		Callbacks: callbacks.New(callbacks.Config{Session: "s1", Journal: j, Observer: observe.Silent(), Logger: logger}),
		Configure: func(_ context.Context, do func(Runtime) error) error { return do(f) },
		Call: func(_ context.Context, _ Callee, method string, params jsonobj.Object) (json.RawMessage, journal.Position, error) {
			f.calls = append(f.calls, method+string(params.JSON()))
			return json.RawMessage(`{"of":"` + method + `"}`), journal.Position{Seq: 7}, f.refuse
		},
		Loaded:     func() bool { return !f.gone },
		Disconnect: func(context.Context) error { f.gone = true; return nil },
		Classify:   func(err error, _ string) error { return err },
		Go:         run, Logger: logger,
	})
	return f
}

func (f *fixture) join(t *testing.T, b roster.Brings) *roster.Participant {
	t.Helper()
	joined, err := f.Join(t.Context(), Joining{Brings: b})
	if err != nil {
		t.Fatal(err)
	}
	return joined.Participant
}

// methods returns the methods of the calls so far, and clears the list.
func (f *fixture) methods() (out []string) {
	for _, call := range f.calls {
		method, _, _ := strings.Cut(call, "{")
		out = append(out, method)
	}
	f.calls = nil
	return out
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("calls are %v, want %v", got, want)
	}
}

var tool = []config.Tool{{Name: "t", JSON: json.RawMessage(`{"name":"t"}`)}}

// TestSync: the CLI receives only the differences, each once, and changed tools without a resume.
func TestSync(t *testing.T) {
	t.Parallel()
	f := newFixture()
	p := f.join(t, roster.Brings{Tools: tool})
	want(t, f.methods(), "session.tools.set")
	f.join(t, roster.Brings{Handling: config.Handling{Methods: []string{"userInput.request"}}})
	want(t, f.methods(), "session.resume")
	if result, at := f.lastAnswer(); result != `{"of":"session.resume"}` || at.Seq != 7 {
		t.Errorf("opened with %s at %v", result, at)
	}
	if err := f.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, f.methods())
	f.Leave(p)
	f.tasks.Wait()
	want(t, f.methods(), "session.tools.set")
	if f.Count() != 1 || f.saved == 0 {
		t.Errorf("%d participants, saved %d times", f.Count(), f.saved)
	}
}

// lastAnswer is Manager.Opened, which the fixture's Opened hides.
func (f *fixture) lastAnswer() (string, journal.Position) {
	result, at := f.Manager.Opened()
	return string(result), at
}

// TestRefused: a participant whose tools the CLI refuses does not stay, one that returned does.
func TestRefused(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.refuse = errors.New("refused")
	if _, err := f.Join(t.Context(), Joining{Brings: roster.Brings{Tools: tool}}); !errors.Is(err, f.refuse) || f.Count() != 0 {
		t.Errorf("joined: %v, %d participants", err, f.Count())
	}
	f.tasks.Wait()
	f.gone = true
	if _, err := f.Join(t.Context(), Joining{}); err == nil || f.Count() != 0 {
		t.Errorf("joined a session that is not in use: %v", err)
	}
}

// TestSatellite: a participant with canvases gets one connection, which goes when it leaves.
func TestSatellite(t *testing.T) {
	t.Parallel()
	f := newFixture()
	p := f.join(t, roster.Brings{Own: jsonobj.Object{{Key: "canvases", Value: json.RawMessage(`[{"id":"c"}]`)}}})
	if err := f.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(f.opened) != 1 || len(f.opened[0].calls) != 1 || !strings.Contains(f.opened[0].calls[0], `"canvases":[{"id":"c"}]`) {
		t.Fatalf("satellites are %+v", f.opened)
	}
	f.Leave(p)
	f.tasks.Wait()
	if !f.opened[0].closed || f.roster.HasSatellite() {
		t.Error("the satellite is still there")
	}
}

// TestLast: with the last participant the use of a session ends that was made so.
func TestLast(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{false, true} {
		f := newFixture()
		f.ends = ends
		p, q := f.join(t, roster.Brings{}), f.join(t, roster.Brings{})
		if alone, last := f.Alone(p); alone || last {
			t.Error("one of two is alone")
		}
		f.Leave(q)
		f.tasks.Wait()
		if alone, last := f.Alone(p); !alone || last != ends || f.gone {
			t.Errorf("alone %v, the last %v, gone %v; want %v", alone, last, f.gone, ends)
		}
		f.Lost(p, errors.New("broken"))
		f.tasks.Wait()
		if f.gone != ends || f.Count() != 0 {
			t.Errorf("gone %v with %d participants, want %v", f.gone, f.Count(), ends)
		}
	}
}
