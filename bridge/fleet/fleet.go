// Package fleet owns the CLI processes that a bridge uses: which sessions each has loaded, in which one a session is
// loaded next, what happens to sessions when their process ends, and when a process is replaced or ended.
//
// Runtimes of one profile are shards. Calls without a session go to the first shard of their profile; list calls merge
// the sessions of every home in use. Sweep ends shards that have had no session for the idle time, except the first one
// of the server's own profile, and unloads idle sessions after asking the CLI for running work. A start of a runtime
// reads the confinement from the policy and stores it in the profile; if a new policy differs, the sessions leave the
// runtime, or lose it after the grace period, and the runtime is stopped (confinement.go).
//
// Locks: a Runtime's mutex guards its table of sessions and its end; the placement table's is taken while it is held,
// never the other way round. The mutex of a list guards the list alone; a runtime's may be taken while it is held.
// No lock is held across a call of the CLI, nor while a session is called, except by Route and Unroute, which a session
// calls itself.
//
// Goroutines: the handlers of a connection run on its reader (event, pause, throttle, notification), which they must
// not block, and on its workers (request); the connection ends both. Background tasks (Run, the watch of each process,
// unloading, reviving, ending a process) belong to the shutdown coordinator.
package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/broadcast"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota/admission"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Start starts a runtime whose connection the fleet serves.
type Start func(ctx context.Context, cfg runtime.Config) (*runtime.Runtime, error)

// Supervisor starts and restarts CLI processes.
type Supervisor interface {
	// Get returns the profile's runtime when it is ready, starting one if need be.
	Get(ctx context.Context, p runtime.Profile) (*runtime.Runtime, error)
	// Retire ends the profile's runtime; the next Get starts another.
	Retire(ctx context.Context, p runtime.Profile) error
	// Down returns when a profile's runtime that ended and is not replaced yet may be started again. ok is false when
	// there is none.
	Down(p runtime.Profile) (retry time.Time, ok bool)
	// Release releases a runtime and reports whether the supervisor had it: the runtime keeps running, and the next Get
	// starts another. The caller ends the runtime.
	Release(rt *runtime.Runtime) bool
}

// HostCallbacks receives what CLI processes call in the namespace host about AHP hosts (host.start). These calls are
// about no session. A bridge has one only if it serves one program, which runs in the same process.
type HostCallbacks interface {
	// Request answers a request. It may wait.
	Request(ctx context.Context, method string, params []byte) (json.RawMessage, error)
	// Notification takes a notification. It must neither wait nor keep params.
	Notification(method string, params []byte)
}

// Config configures a Fleet. All fields but Host, Warm and Tuning are required.
type Config struct {
	// Supervise returns the supervisor, which starts each process by start.
	Supervise func(start Start) Supervisor
	// Tenants says which profiles are permitted. The first runtime of its host's profile is never ended.
	Tenants *tenancy.Tenants
	// Shutdown runs the background tasks.
	Shutdown *shutdown.Coordinator
	// Store has the sessions.
	Store *sessions.Store
	// Changed reports a change of a session, such as the CLI's own.
	Changed func(e *sessions.Entry, change bridgev1.SessionChange)
	// Notified reports a session.lifecycle notification of a tenant's process that the bridge did not cause; e is nil
	// unless the process has loaded the session. It must neither wait nor keep params.
	Notified func(e *sessions.Entry, tenant, id string, params []byte)
	// Admission limits the runtimes of a tenant and of all tenants, and their memory.
	Admission *admission.Controller
	// Warm returns, by tenant, how many runtimes with room for a session its default profile has ready. Nil: none.
	Warm func() map[string]int
	// SweepInterval is the time between two sweeps.
	SweepInterval time.Duration
	Tuning        Tuning
	// Host receives the CLI's calls in the namespace host; nil refuses the requests and drops the notifications.
	Host HostCallbacks
	Log  *slog.Logger
}

// Tuning is the part of the configuration that may change while a fleet runs.
type Tuning struct {
	// Placement says how sessions share runtimes.
	Placement placement.Config
	// IdleUnload is how long a session must be idle before it is unloaded.
	IdleUnload time.Duration
	// ConfinementGrace is how long a process may continue whose confinement a policy has changed.
	ConfinementGrace time.Duration
	// Wear says when runtimes are replaced.
	Wear Wear
}

// Defaults of Tuning.
const (
	DefaultIdleUnload       = 30 * time.Minute
	DefaultConfinementGrace = 10 * time.Second
)

// Fleet has the runtimes of a bridge. It is safe for concurrent use.
type Fleet struct {
	cfg        Config
	log        *slog.Logger
	table      *placement.Table
	supervisor Supervisor
	tuning     atomic.Pointer[Tuning]
	runtimes   list
	unloading  sync.Map // the tenants of which a session is being unloaded
	warmer     warmer
	telemetry  *broadcast.Hub[Notice]
	hostEvents *broadcast.Hub[Notice]
	// builtIns are the names that a CLI told last.
	builtIns atomic.Pointer[config.BuiltIns]
}

// New returns a fleet without runtimes. Its Run must be run.
func New(cfg Config) *Fleet {
	f := &Fleet{
		cfg: cfg, log: cfg.Log, table: placement.New(cfg.Tuning.Placement, cfg.Tenants.Host.Profile, time.Now),
		telemetry: newNotices(), hostEvents: newNotices(),
	}
	f.tuning.Store(&cfg.Tuning)
	f.table.Bound(cfg.Admission.Runtimes)
	f.supervisor = cfg.Supervise(f.start)
	return f
}

// Tune replaces the tuning. Existing runtimes and sessions above new limits stay.
func (f *Fleet) Tune(t Tuning) {
	f.tuning.Store(&t)
	f.table.Reconfigure(t.Placement)
}

// Placement returns the configuration of the placement in force, with defaults filled in.
func (f *Fleet) Placement() placement.Config { return f.table.Config() }

// Telemetry broadcasts the copies of the CLI's telemetry.
func (f *Fleet) Telemetry() *broadcast.Hub[Notice] { return f.telemetry }

// HostEvents broadcasts what CLI processes report to their host.
func (f *Fleet) HostEvents() *broadcast.Hub[Notice] { return f.hostEvents }

// start starts a runtime and watches its end.
func (f *Fleet) start(ctx context.Context, cfg runtime.Config) (*runtime.Runtime, error) {
	rt := &Runtime{
		fleet: f, id: "rt-" + rand.Text()[:8], profile: cfg.Profile, sessions: map[string]*session.Session{},
		burst: burst{names: event.Names{}}, told: make(chan struct{}),
	}
	cfg.RPC.Event = rt.event
	cfg.RPC.Pause = rt.burst.end
	cfg.RPC.Throttle = rt.throttle
	cfg.RPC.Notification = rt.notification
	cfg.RPC.Request = rt.request
	cfg.RPC.Arrive = lane
	cfg.RPC.Logger = f.log
	cfg.RPC.MaxDepth = rpcconn.CLIMaxDepth
	cfg.Prepare = runtime.Provide
	cfg.MaxRSS = f.cfg.Admission.MaxRSS(cfg.Profile.Tenant, cfg.MaxRSS)
	process, err := runtime.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	rt.mu.Lock()
	rt.process = process
	rt.mu.Unlock()
	f.runtimes.add(rt)
	f.cfg.Shutdown.Go(func(ctx context.Context) {
		select {
		case <-process.Done():
			rt.ended(process.Err())
		case <-ctx.Done():
		}
	})
	f.fenceStale(rt) // the policy may have changed while it started
	return process, nil
}

// Visible returns the runtimes of the caller's tenant, or all if the caller may operate the server. The last ended
// ones are among them.
func (f *Fleet) Visible(c caller.Caller) []*Runtime {
	return slices.DeleteFunc(f.runtimes.all(), func(rt *Runtime) bool {
		return rt.profile.Tenant != c.Tenant && !c.May(caller.Operate)
	})
}

// Down returns when the runtime, which has ended, may be started again. ok is false if it was replaced.
func (f *Fleet) Down(rt *Runtime) (retry time.Time, ok bool) { return f.supervisor.Down(rt.profile) }

// running returns the runtimes of a tenant that have not ended.
func (f *Fleet) running(tenant string) []*Runtime {
	return slices.DeleteFunc(f.runtimes.all(), func(rt *Runtime) bool {
		return rt.profile.Tenant != tenant || rt.Err() != nil
	})
}

// Metrics reports the calls, requests, queues and memory of all runtimes together.
func (f *Fleet) Metrics(put observe.Put) {
	var calls, requests, queued, memory int64
	for _, rt := range f.runtimes.all() {
		if rt.Err() != nil {
			continue
		}
		process := rt.Process()
		stats := process.Conn().Stats()
		calls, requests, queued = calls+int64(stats.InFlight), requests+int64(stats.Serving), queued+int64(stats.QueuedBytes)
		memory += process.Health().RSS
	}
	put(observe.CLICalls, "", calls)
	put(observe.CLIRequests, "", requests)
	put(observe.CLIQueue, "", queued)
	put(observe.RuntimeMemory, "", memory)
}
