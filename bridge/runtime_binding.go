package bridge

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/shell"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Start starts a runtime whose connection the bridge serves.
type Start func(ctx context.Context, cfg runtime.Config) (*runtime.Runtime, error)

// Runtimes keeps the CLI processes.
type Runtimes interface {
	// Get returns the profile's runtime when it is ready, starting one if need be.
	Get(ctx context.Context, p runtime.Profile) (*runtime.Runtime, error)
	// Retire ends the profile's runtime; the next Get starts another.
	Retire(ctx context.Context, p runtime.Profile) error
	// Down tells of a profile's runtime that ended and is not replaced yet: when it may be
	// started again. ok is false when there is none.
	Down(p runtime.Profile) (retry time.Time, ok bool)
}

// binding ties a runtime to the sessions it has loaded. The handlers of its connection
// run on the connection's reader and must not block.
type binding struct {
	b  *Bridge
	id string
	// profile is what the runtime was started with.
	profile runtime.Profile
	// names are of the events; only the connection's reader uses them.
	names event.Names
	// gathered are the journals to which the events of this burst went; likewise.
	gathered []*journal.Journal
	fed      []*journal.Journal // those of the burst before, which ended in pause
	came     time.Time          // when they did; zero between bursts

	mu       sync.RWMutex
	rt       *runtime.Runtime
	sessions map[string]*session.Session
	lost     error
	// told is closed when the sessions have been told of the end.
	told chan struct{}

	shells shell.Table
	guests guestCalls

	// leaving says that the runtime is being replaced (mu), retiring that it has been asked to
	// end; only tend changes them.
	leaving, retiring bool

	// fenced says that its confinement is not the policy's any more (runtime_confinement.go).
	fenced atomic.Bool
}

// startRuntime starts a runtime and watches its end.
func (b *Bridge) startRuntime(ctx context.Context, cfg runtime.Config) (*runtime.Runtime, error) {
	bind := &binding{
		b: b, id: "rt-" + rand.Text()[:8], profile: cfg.Profile, sessions: map[string]*session.Session{},
		names: event.Names{}, told: make(chan struct{}),
	}
	cfg.RPC.Event = bind.event
	cfg.RPC.Pause = bind.pause
	cfg.RPC.Throttle = bind.throttle
	cfg.RPC.Notification = bind.notification
	cfg.RPC.Request = bind.request
	cfg.RPC.Arrive = arrive
	cfg.RPC.Logger = b.log
	cfg.RPC.MaxDepth = rpcconn.CLIMaxDepth
	cfg.Prepare = runtime.Provide
	cfg.MaxRSS = b.admission.MaxRSS(cfg.Profile.Tenant, cfg.MaxRSS)
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	bind.mu.Lock()
	bind.rt = rt
	bind.mu.Unlock()
	b.fleet.Add(bind)
	b.Go(func(ctx context.Context) {
		select {
		case <-rt.Done():
			bind.ended(rt.Err())
		case <-ctx.Done():
		}
	})
	bind.fenceStale() // the policy may have changed while it started
	return rt, nil
}

func (bind *binding) runtime() *runtime.Runtime {
	bind.mu.RLock()
	defer bind.mu.RUnlock()
	return bind.rt
}

// Call makes a JSON-RPC call.
func (bind *binding) Call(ctx context.Context, method string, params []byte, opts ...rpcconn.CallOption) (json.RawMessage, error) {
	if err := bind.checkFence(ctx, method); err != nil {
		return nil, err
	}
	release, err := bind.guests.take(ctx, bind.profile.Tenant, method)
	if err != nil {
		return nil, err
	}
	if release != nil {
		opts = append(slices.Clip(opts), rpcconn.OnFree(release))
	}
	result, err := bind.runtime().Conn().Call(ctx, method, params, opts...)
	if err != nil && errors.Is(err, rpcconn.ErrClosed) {
		if cause := bind.runtime().Err(); cause != nil {
			err = errors.Join(err, cause)
		}
		return nil, fault.Wrap(err, fault.RuntimeLost, "the runtime ended during %s", method).With("method", method)
	}
	return result, err
}

// Route sends a session's events to it. In a runtime that has ended the session has no
// place.
func (bind *binding) Route(s *session.Session) {
	bind.mu.Lock()
	defer bind.mu.Unlock()
	if bind.lost != nil {
		bind.b.table.Remove(s.Key(), bind.profile)
		return
	}
	bind.sessions[s.ID()] = s
}

// Unroute ends that.
func (bind *binding) Unroute(s *session.Session) {
	bind.mu.Lock()
	defer bind.mu.Unlock()
	if bind.sessions[s.ID()] == s {
		delete(bind.sessions, s.ID())
		bind.b.table.Remove(s.Key(), bind.profile)
	}
}

// Version is the CLI's version.
func (bind *binding) Version() string { return bind.runtime().Info().CLIVersion }

// Shells implements shell.Host.
func (bind *binding) Shells() *shell.Table { return &bind.shells }

func (bind *binding) session(id []byte) *session.Session {
	bind.mu.RLock()
	defer bind.mu.RUnlock()
	return bind.sessions[string(id)]
}

// has reports whether the runtime has the session of the key loaded.
func (bind *binding) has(key string) bool {
	bind.mu.RLock()
	defer bind.mu.RUnlock()
	for _, s := range bind.sessions {
		if s.Key() == key {
			return true
		}
	}
	return false
}

// event takes a session.event notification.
func (bind *binding) event(body []byte) {
	frame, err := translate.ScanFrame(body)
	if err != nil || frame.Event.Raw == nil {
		bind.b.log.Warn("event not understood", "runtime_id", bind.id, "bytes", len(body))
		return
	}
	if s := bind.session(frame.SessionID); s != nil {
		if j := s.Journal(); j.Gather() {
			bind.gathered = append(bind.gathered, j)
		}
		if bind.came.IsZero() {
			bind.came = time.Now()
		}
		s.Ingest(event.Record(frame.Event, bytes.Clone(frame.Event.Raw), bind.names), bind.came)
	}
}

// pause ends a burst: the events that came in one piece go on in one piece.
func (bind *binding) pause() {
	for _, j := range bind.gathered {
		j.Scatter()
	}
	clear(bind.fed)
	bind.fed, bind.gathered, bind.came = bind.gathered, bind.fed[:0], time.Time{}
}

// throttle waits for the disk of the journals that the last burst went to, if it has fallen
// behind: a CLI is read as fast as what it says can be kept. Nothing that the disk waits for
// comes by this connection.
func (bind *binding) throttle(over <-chan struct{}) (waited bool) {
	if len(bind.fed) == 0 {
		return false
	}
	begin, rt := time.Now(), bind.runtime()
	if rt == nil {
		return false
	}
	for _, j := range bind.fed {
		waited = j.AwaitDisk(over, rt.Exited()) || waited
	}
	if took := time.Since(begin); waited && took > slowDisk {
		bind.b.log.Warn("reading a runtime is slowed by the disk", "runtime_id", bind.id, "waited", took)
	}
	return waited
}

// slowDisk is how long a runtime may be held up by the disk at a time without a word in the log.
const slowDisk = 5 * time.Second

// lifecycle is what the CLI tells about any session of its process.
type lifecycle struct {
	Type      string `json:"type"`
	SessionID string `json:"sessionId"`
}

var lifecycleChanges = map[string]bridgev1.SessionChange{
	"session.updated":    bridgev1.SessionChange_SESSION_CHANGE_UPDATED,
	"session.foreground": bridgev1.SessionChange_SESSION_CHANGE_FOREGROUND,
	"session.background": bridgev1.SessionChange_SESSION_CHANGE_BACKGROUND,
}

// notification takes any other notification. Creation and deletion are told by the
// bridge itself, once each: the CLI tells them several times.
func (bind *binding) notification(method string, params []byte) {
	switch method {
	case "session.lifecycle":
	case shell.Output, shell.Exit:
		bind.shells.Take(method, params)
		return
	case telemetryEvent:
		bind.takeTelemetry(params)
		return
	case hostEvent:
		bind.takeHostEvent(params)
		return
	default:
		return
	}
	var l lifecycle
	if json.Unmarshal(params, &l) != nil {
		return
	}
	if change, ok := lifecycleChanges[l.Type]; ok {
		if s := bind.session([]byte(l.SessionID)); s != nil {
			bind.b.updated(s, change)
		}
	}
}

// request takes a request of the CLI. It runs on a worker and waits for the answer.
func (bind *binding) request(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	var a about
	_ = json.Unmarshal(r.Params, &a) // what is not understood names no session
	a.SessionID = cmp.Or(a.SessionID, a.PolicySessionID)
	model := ofModel(r.Method)
	if a.SessionID == "" && !model {
		return bind.askAll(ctx, r)
	}
	s := bind.asked(r.Method, a)
	id := bind.id + "-" + r.ID
	switch {
	case s == nil:
		return nil, &rpcconn.Error{Code: rpcconn.CodeMethodNotFound, Message: "nobody handles " + r.Method}
	case r.Method == callback.ModelRequestStart:
		return s.Models().Start(ctx, bind, id, r.Params)
	case r.Method == callback.ModelRequestChunk:
		return s.Models().Chunk(ctx, id, r.Params)
	}
	return s.Callbacks().AskMethod(ctx, id, r.Method, r.Params)
}

// ended tells the sessions that their runtime is gone.
func (bind *binding) ended(cause error) {
	if cause == nil {
		cause = fault.New(fault.RuntimeLost, "the runtime was stopped")
	}
	bind.mu.Lock()
	sessions := bind.sessions
	bind.sessions, bind.lost = map[string]*session.Session{}, cause
	for id := range sessions {
		bind.b.table.Remove(session.Key(bind.profile.Tenant, id), bind.profile)
	}
	bind.mu.Unlock()
	bind.shells.End(cause)
	var wanted []*session.Session
	for _, s := range sessions {
		if s.RuntimeLost(bind, cause) {
			wanted = append(wanted, s)
		}
	}
	close(bind.told)
	b := bind.b
	b.revive(wanted)
	b.fleet.Ended(bind, fault.ReasonOf(cause) == fault.RuntimeStopping) // then it was not needed any more
}

// Err says why the runtime ended; nil while it has not.
func (bind *binding) Err() error {
	bind.mu.RLock()
	defer bind.mu.RUnlock()
	return bind.lost
}

// Ended is closed when the runtime has ended and its sessions know it.
func (bind *binding) Ended() <-chan struct{} { return bind.told }
