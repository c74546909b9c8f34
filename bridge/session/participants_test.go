package session

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// crowded is a session that is loaded in one runtime, which records its calls and refuses them if told so.
type crowded struct {
	puppet
	fixture
	of     *Session
	refuse error
	saved  int
	opened []*satellite
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

// MarkDirty implements Host.
func (f *crowded) MarkDirty() { f.saved++ }

// Satellite implements Runtime.
func (f *crowded) Satellite(context.Context, string, Asker) (roster.Satellite, error) {
	sat := &satellite{}
	f.opened = append(f.opened, sat)
	return sat, nil
}

func newCrowded() *crowded {
	f := &crowded{}
	f.ctx = context.Background()
	f.answer = func(method string) (string, error) { return `{"of":"` + method + `"}`, f.refuse }
	f.of = New(Config{ID: "s1", Host: f, Epoch: 1, Encode: func(*journal.Record, journal.Form) []byte { return nil }})
	f.of.loader.runtime, f.of.loader.state = f, Loaded
	f.of.Ingest(&journal.Record{Type: "session.start", JSON: []byte(`{}`)}, time.Now())
	return f
}

// Refresh implements Host.
func (f *crowded) Refresh() { f.refresh(f.of) }

// gone reports whether the use of the session has ended.
func (f *crowded) gone() bool { return f.of.loader.State() == Disconnected }

func (f *crowded) join(t *testing.T, b roster.Brings) *roster.Participant {
	t.Helper()
	joined, err := f.of.participants.Join(t.Context(), Joining{Brings: b})
	if err != nil {
		t.Fatal(err)
	}
	return joined.Participant
}

// methods returns the methods of the calls so far, and clears the list.
func (f *crowded) methods() []string {
	out := f.calls
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
	f := newCrowded()
	p := f.join(t, roster.Brings{Tools: tool})
	want(t, f.methods(), "session.tools.set")
	f.join(t, roster.Brings{Handling: config.Handling{Methods: []string{"userInput.request"}}})
	want(t, f.methods(), "session.resume")
	if result, at := f.of.participants.Opened(); string(result) != `{"of":"session.resume"}` {
		t.Errorf("opened with %s at %v", result, at)
	}
	if err := f.of.participants.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, f.methods())
	f.saved = 0
	f.of.participants.Leave(p)
	f.tasks.Wait()
	want(t, f.methods(), "session.tools.set")
	if f.of.participants.Count() != 1 || f.saved == 0 {
		t.Errorf("%d participants, saved %d times", f.of.participants.Count(), f.saved)
	}
}

// TestToolsGo: the CLI learns that a session has no tools any more, also by a resume.
func TestToolsGo(t *testing.T) {
	t.Parallel()
	f := newCrowded()
	f.of.mu.Lock()
	lacks(t, string(f.of.participants.effective().JSON()), `"tools"`)
	f.of.mu.Unlock()
	p := f.join(t, roster.Brings{Name: "n", Tools: tool, Commands: []config.Command{{Name: "c"}}})
	shown := f.of.Snapshot().GetParticipants()
	if len(shown) != 1 || !slices.Equal(shown[0].GetTools(), []string{"t"}) || !slices.Equal(shown[0].GetCommands(), []string{"c"}) ||
		shown[0].GetName() != "n" || shown[0].GetParticipantId() != p.ID {
		t.Errorf("the participants are %v", shown)
	}
	f.of.participants.Leave(p)
	f.tasks.Wait()
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	has(t, string(f.of.participants.effective().JSON()), `"tools":[]`)
}

// TestRefused: a participant whose tools the CLI refuses does not stay, one that returned does.
func TestRefused(t *testing.T) {
	t.Parallel()
	f := newCrowded()
	f.refuse = errors.New("refused")
	if _, err := f.of.participants.Join(t.Context(), Joining{Brings: roster.Brings{Tools: tool}}); !errors.Is(err, f.refuse) || f.of.participants.Count() != 0 {
		t.Errorf("joined: %v, %d participants", err, f.of.participants.Count())
	}
	f.tasks.Wait()
	f.of.loader.state = Disconnected
	if _, err := f.of.participants.Join(t.Context(), Joining{}); err == nil || f.of.participants.Count() != 0 {
		t.Errorf("joined a session that is not in use: %v", err)
	}
}

// TestSatellite: a participant with canvases gets one connection, which goes when it leaves.
func TestSatellite(t *testing.T) {
	t.Parallel()
	f := newCrowded()
	p := f.join(t, roster.Brings{Own: jsonobj.Object{{Key: "canvases", Value: json.RawMessage(`[{"id":"c"}]`)}}})
	if err := f.of.participants.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(f.opened) != 1 || len(f.opened[0].calls) != 1 || !strings.Contains(f.opened[0].calls[0], `"canvases":[{"id":"c"}]`) {
		t.Fatalf("satellites are %+v", f.opened)
	}
	if f.opened[0].closed {
		t.Error("the satellite is closed while the participant is there")
	}
	f.of.participants.Leave(p)
	f.tasks.Wait()
	if !f.opened[0].closed || f.of.roster.HasSatellite() {
		t.Error("the satellite is still there")
	}
}

// TestSatelliteEndsWithTheUse: the connections of participants are closed when the session has no runtime any more.
func TestSatelliteEndsWithTheUse(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*crowded) error{
		"disconnected": func(f *crowded) error { _, err := f.of.loader.Disconnect(f.ctx, true); return err },
		"lost":         func(f *crowded) error { f.of.loader.RuntimeLost(f, errors.New("killed")); return nil },
	} {
		f := newCrowded()
		for range 2 {
			f.join(t, roster.Brings{Own: jsonobj.Object{{Key: "canvases", Value: json.RawMessage(`[{"id":"c"}]`)}}})
		}
		if err := end(f); err != nil {
			t.Fatal(err)
		}
		f.tasks.Wait()
		if len(f.opened) != 2 || !f.opened[0].closed || !f.opened[1].closed || f.of.roster.HasSatellite() {
			t.Errorf("%s: the satellites are %+v", name, f.opened)
		}
	}
}

// TestLast: with the last participant the use of a session ends that was made so.
func TestLast(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{false, true} {
		f := newCrowded()
		var by callers
		f.of.audit.log = &by
		if ends {
			f.of.loader.lifetime = bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT
		}
		p, q := f.join(t, roster.Brings{}), f.join(t, roster.Brings{})
		if alone, last := f.of.participants.Alone(p); alone || last {
			t.Error("one of two is alone")
		}
		f.of.participants.Leave(q)
		f.tasks.Wait()
		if alone, last := f.of.participants.Alone(p); !alone || last != ends || f.gone() {
			t.Errorf("alone %v, the last %v, gone %v; want %v", alone, last, f.gone(), ends)
		}
		f.of.participants.Lost(p, errors.New("broken"))
		f.tasks.Wait()
		if f.gone() != ends || f.of.participants.Count() != 0 {
			t.Errorf("gone %v with %d participants, want %v", f.gone(), f.of.participants.Count(), ends)
		}
		if ends && !slices.Equal(by, callers{audit.Bridge}) {
			t.Errorf("the audit log names %q, want the bridge", by)
		}
	}
}

// callers is an audit log of the names of callers.
type callers []string

func (c *callers) Record(ctx context.Context, _ audit.Entry) { *c = append(*c, caller.From(ctx).Name) }

// TestLeaveBy: a participant leaves by its token, and its stream ends with the cause.
func TestLeaveBy(t *testing.T) {
	t.Parallel()
	f := newCrowded()
	cause := errors.New("another caller")
	if f.of.participants.LeaveBy("unknown", cause) {
		t.Error("a participant that is not there leaves")
	}
	for _, connected := range []bool{true, false} {
		p := f.join(t, roster.Brings{Tools: tool, Grace: time.Hour})
		var ended error
		p.Replace, p.Connected = func(err error) { ended = err }, connected
		if !f.of.participants.LeaveBy(p.Token, cause) || f.of.participants.Count() != 0 || errors.Is(ended, cause) != connected {
			t.Errorf("connected %v: %d participants, its stream ended with %v", connected, f.of.participants.Count(), ended)
		}
		f.tasks.Wait()
	}
}

// TestRemovedMeanwhile: who was removed while it joined, or changed what it brings, is told that it has no place, also if another
// caller has opened the session again meanwhile.
func TestRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	joining := Joining{Brings: roster.Brings{Tools: tool, Grace: time.Hour}}
	for name, does := range map[string]func(ctx context.Context, m *Participants, p *roster.Participant) error{
		"joins": func(ctx context.Context, m *Participants, _ *roster.Participant) error {
			_, err := m.Join(ctx, joining)
			return err
		},
		"changes": func(ctx context.Context, m *Participants, p *roster.Participant) error {
			return m.Change(ctx, p, &[]config.Tool{}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newCrowded()
				p := f.join(t, roster.Brings{Grace: time.Hour})
				if err := f.of.loader.lifecycle.acquire(t.Context()); err != nil {
					t.Fatal(err)
				}
				told := make(chan error, 1)
				go func() { told <- does(t.Context(), f.of.participants, p) }()
				synctest.Wait()
				f.of.update(f.of.roster.Clear)
				f.of.loader.lifecycle.release()
				wantReason(t, <-told, fault.ParticipantNotFound)
			})
		})
	}
}

// watchedHost has callers of WatchPending.
type watchedHost struct {
	*stock
	methods []string
}

func (h *watchedHost) Watched(map[string]string) []string { return h.methods }

// The CLI learns of what callers of WatchPending begin and cease to handle, and is left alone otherwise.
func TestRefresh(t *testing.T) {
	t.Parallel()
	p := &puppet{}
	h := &watchedHost{stock: &stock{fixture: &fixture{ctx: t.Context()}, rt: p}}
	s := New(Config{ID: "s1", Host: h, Epoch: 7})
	s.loader.state, s.ingester.Known.HasHistory = Unloaded, true
	if err := s.participants.Refresh(t.Context()); err != nil || len(p.calls) > 0 {
		t.Errorf("while no runtime has the session, it gets %q, %v", p.calls, err)
	}
	if _, err := s.loader.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		methods []string
		resumed bool
	}{
		{nil, false}, {[]string{"userInput.request"}, true}, {[]string{"userInput.request"}, false}, {nil, true},
	} {
		h.methods, p.calls = test.methods, nil
		if err := s.participants.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if resumed := p.called("session.resume"); resumed != test.resumed || !resumed && len(p.calls) > 0 {
			t.Errorf("with %q the CLI gets %q", test.methods, p.calls)
		}
	}
}

// TestRefusedReturn: a participant whose return fails keeps its place for its grace time, and is not connected.
func TestRefusedReturn(t *testing.T) {
	t.Parallel()
	f := newCrowded()
	p := f.join(t, roster.Brings{Tools: tool, Grace: time.Hour})
	f.of.participants.Lost(p, errors.New("broken"))
	f.refuse = errors.New("refused")
	_, err := f.of.participants.Join(t.Context(), Joining{Token: p.Token, Brings: roster.Brings{Grace: time.Hour}})
	if !errors.Is(err, f.refuse) || f.of.participants.Count() != 1 || p.Connected {
		t.Errorf("%v; %d participants, connected: %v", err, f.of.participants.Count(), p.Connected)
	}
	f.of.participants.Leave(p)
	f.tasks.Wait()
}

// TestResponseOfALostParticipant: a response of a model does not wait for a participant whose connection broke.
func TestResponseOfALostParticipant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowded()
		p := f.join(t, roster.Brings{Handling: config.Handling{Methods: []string{callback.ModelRequestStart}}, Grace: time.Minute})
		f.tasks.Go(func() { _, _ = f.of.models.Start(f.ctx, f, "m1", json.RawMessage(`{"requestId":"q"}`)) })
		synctest.Wait()
		f.of.callbacks.Resolve(f.ctx, "m1", callback.Responder{Participant: p.ID}, callback.Reply{Members: json.RawMessage(`{}`)},
			func(journal.Position, error) {})
		synctest.Wait()
		f.methods()
		f.of.participants.Lost(p, errors.New("broken"))
		synctest.Wait()
		if !f.called("llmInference.httpResponseStart") {
			t.Errorf("the calls are %v", f.methods())
		}
		f.of.participants.Leave(p)
		f.tasks.Wait()
	})
}

// TestChangedHandling: a participant may handle other callbacks than it did.
func TestChangedHandling(t *testing.T) {
	t.Parallel()
	f := newCrowded()
	p := f.join(t, roster.Brings{})
	h := config.Handling{Methods: []string{callback.PermissionRequested}}
	if err := f.of.participants.Change(t.Context(), p, nil, &h); err != nil || !slices.Equal(p.Handling.Methods, h.Methods) {
		t.Errorf("%v; it handles %v", err, p.Handling.Methods)
	}
}
