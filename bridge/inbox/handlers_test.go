package inbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
)

// entry returns a session of a tenant.
func entry(tenant string) *sessions.Entry {
	e := sessions.NewEntry(runtime.Profile{})
	host := struct{ session.Host }{} // it is not called
	e.Session = session.New(session.Config{ID: "s", Tenant: tenant, Host: host})
	return e
}

const permission, input, confirm = "permission.requested", "userInput.request", "installations.confirm"

func handles(tenant string, methods ...string) *handler {
	return &handler{scope: scope{tenant: tenant}, methods: methods}
}

// Which handlers count for which sessions.
func TestWatched(t *testing.T) {
	t.Parallel()
	red := map[string]string{"team": "red"}
	byLabel, byOwner := handles("a", input), handles("b", permission)
	byLabel.labels, byOwner.owner = red, "b"
	own, observed, given := entry("a"), entry("a"), entry("a")
	observed.Shares.Offer("b", caller.Read)
	observed.Shares.Accept("b")
	given.Shares.Offer("b", caller.Drive)
	for name, test := range map[string]struct {
		e       *sessions.Entry
		labels  map[string]string
		handler *handler
		want    []string
	}{
		"the tenant's session":  {own, nil, handles("a", permission, input), []string{permission, input}},
		"another tenant's":      {own, nil, handles("b", permission), nil},
		"shared to observe":     {observed, nil, handles("b", permission), nil},
		"only offered":          {given, nil, handles("b", permission), nil},
		"with the label":        {own, red, byLabel, []string{input}},
		"without the label":     {own, nil, byLabel, nil},
		"of another owner":      {own, nil, byOwner, nil},
		"the host's own tenant": {entry(caller.HostTenant), nil, handles(caller.HostTenant, confirm), []string{confirm}},
	} {
		var hs handlers
		hs.add(test.handler)
		if got := hs.watched(test.e, test.labels); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	given.Shares.Accept("b")
	var hs handlers
	hs.add(handles("b", confirm, permission))
	hs.add(handles("a", permission))
	if got := hs.watched(given, nil); !slices.Equal(got, []string{permission}) {
		t.Errorf("a guest and the owner handle %q: a guest answers no installation", got)
	}
}

// A handler in its grace time ends with it, is replaced by the same handler, and is displaced when its tenant has too
// many.
func TestLingering(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hs handlers
		var ended []string
		var mu sync.Mutex
		linger := func(h *handler, grace time.Duration) []*handler {
			hs.add(h)
			return hs.linger(h, grace, func() {
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, h.owner)
			})
		}
		first, second := handles("a", permission), handles("a", permission)
		first.owner, second.owner = "one", "two"
		linger(first, time.Minute)
		linger(second, time.Hour)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(ended, []string{"one"}) || len(hs.all()) != 1 {
			t.Errorf("ended %q, %d are left", ended, len(hs.all()))
		}
		again := handles("a", permission)
		again.owner = "two"
		hs.add(again)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if !slices.Equal(hs.all(), []*handler{again}) || len(ended) != 1 {
			t.Errorf("a replaced handler ended: %q, %d handlers", ended, len(hs.all()))
		}
		other := handles("b", permission)
		linger(other, time.Hour)
		var oldest *handler
		for i := range maxLingering + 1 {
			h := handles("a", permission)
			h.labels = map[string]string{"n": string(rune('A' + i))}
			if i == 0 {
				oldest = h
			}
			displaced := linger(h, time.Hour)
			full := i == maxLingering
			if !full && displaced != nil || full && !slices.Equal(displaced, []*handler{oldest}) {
				t.Errorf("handler %d displaces %d", i, len(displaced))
			}
		}
		all := hs.all()
		if len(all) != maxLingering+2 || !slices.Contains(all, other) || !slices.Contains(all, again) {
			t.Errorf("%d handlers are left", len(all))
		}
		for _, h := range hs.all() {
			hs.remove(h)
		}
	})
}

// Marked sessions are refreshed once each by a few goroutines, again if they are marked meanwhile, and whatever fails.
func TestRefresher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tasks sync.WaitGroup
		var mu sync.Mutex
		running, most := 0, 0
		counts := map[*sessions.Entry]int{}
		r := &refresher{
			run: func(f func(context.Context)) bool {
				tasks.Go(func() { f(t.Context()) })
				return true
			},
			log: slog.New(slog.DiscardHandler),
			refresh: func(_ context.Context, e *sessions.Entry) error {
				mu.Lock()
				running++
				most = max(most, running)
				counts[e]++
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				running--
				return errors.New("the CLI refuses")
			},
		}
		r.mark()
		entries := make([]*sessions.Entry, 1000)
		for i := range entries {
			entries[i] = entry("a")
		}
		r.mark(entries...)
		r.mark(entries...)
		synctest.Wait() // the first ones are being refreshed
		r.mark(entries...)
		tasks.Wait()
		again := 0
		for _, e := range entries {
			if counts[e] == 2 {
				again++
			} else if counts[e] != 1 {
				t.Errorf("a session was refreshed %d times", counts[e])
			}
		}
		if again != refreshWorkers || most != refreshWorkers {
			t.Errorf("%d sessions were refreshed again, %d at once, want %d", again, most, refreshWorkers)
		}
		r.mark(entries[0])
		tasks.Wait()
		if counts[entries[0]] < 2 {
			t.Error("nothing is refreshed after a pause")
		}
	})
}
