package sessions_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// pausing is a data directory whose logs are across a network, which can be away.
type pausing struct {
	*store.Store
	distant

	mu     sync.Mutex
	away   bool
	failed chan struct{} // has room for one append that failed
}

// Journal implements Directory.
func (p *pausing) Journal(id string, epoch uint64) (*journal.Disk, journal.Recovery, error) {
	return journal.OpenLog(pausingLogs{p.logs, p}, id, 1, epoch, id, p.writer)
}

func (p *pausing) set(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

func (p *pausing) reach() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.away {
		return nil
	}
	select {
	case p.failed <- struct{}{}:
	default:
	}
	return errors.New("no route to the storage")
}

type pausingLogs struct {
	backend.Logs

	of *pausing
}

func (l pausingLogs) Open(session string, term, epoch uint64, visit func(n uint64, body []byte) error) (
	backend.Log, backend.Recovered, error,
) {
	log, found, err := l.Logs.Open(session, term, epoch, visit)
	return pausingLog{remoteLog{log}, l.of}, found, err
}

type pausingLog struct {
	remoteLog

	of *pausing
}

func (l pausingLog) Append(last uint64, entries []backend.Entry) error {
	if err := l.of.reach(); err != nil {
		return err
	}
	return l.Log.Append(last, entries)
}

// A session whose last turn is not stored does not leave this server: the next one would not know that turn. It leaves
// when the storage is back, and the turn is there.
func TestHandOverWaitsForTheStorage(t *testing.T) {
	t.Parallel()
	kept, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() }) // after the bridge
	d := &pausing{Store: kept, distant: newDistant(t), failed: make(chan struct{}, 1)}
	r := bridgetest.New(t, fakecli.Script{}, bridgetest.Restarts, func(c *bridgetest.Options) { c.Directory = d })
	r.Create("s1")
	r.Ask("s1", "first")
	d.set(true)
	r.Send(bridgetest.Repeatable("s1", "second"))
	<-d.failed
	if err := r.AwaitRest(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	if left, err := r.Store().HandOver(t.Context(), "s1", false, func() error {
		t.Error("a session was given away whose events are not stored")
		return nil
	}); left || err != nil {
		t.Errorf("left %t, %v", left, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	left, err := r.Store().HandOver(short, "s1", false, func() error { return nil })
	if left || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the caller's end: left %t, %v", left, err)
	}
	d.set(false)
	if out := r.Ask("s1", "third"); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("the turn of the session that stayed: %v", out)
	}
	if left, err := r.Store().HandOver(t.Context(), "s1", false, func() error { return nil }); !left || err != nil {
		t.Errorf("left %t, %v", left, err)
	}
	if _, err := r.Load(t.Context(), "s1", func() ([]backend.Request, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	if got := r.Conversation("s1"); len(got) != 3 {
		t.Errorf("the conversation has %q", got)
	}
}

// Neither does a session leave whose outbox has changes in memory only: the next server would send a prompt again that
// the CLI has had.
func TestHandOverWaitsForTheOutbox(t *testing.T) {
	t.Parallel()
	kept, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() }) // after the bridge
	d := &refusing{Store: kept, distant: newDistant(t)}
	r := bridgetest.New(t, bridgetest.Hanging, bridgetest.Restarts, func(c *bridgetest.Options) { c.Directory = d })
	r.Create("s1")
	r.Ask("s1", "first")
	r.Begin("s1", "long")
	const all = 1 << 30
	d.refuses.Store(all)
	if _, err := r.Sessions.Abort(t.Context(), &bridgev1.AbortRequest{SessionId: "s1"}); err != nil {
		t.Fatal(err)
	}
	if err := r.AwaitRest(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	if left, err := r.Store().HandOver(t.Context(), "s1", false, func() error { return nil }); left || err != nil {
		t.Errorf("left %t, %v", left, err)
	}
	d.refuses.Store(0)
	if left, err := r.Store().HandOver(t.Context(), "s1", false, func() error { return nil }); !left || err != nil {
		t.Errorf("left %t, %v", left, err)
	}
}
