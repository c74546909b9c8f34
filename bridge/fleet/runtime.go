package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Runtime is a CLI process in use, with the sessions that it has loaded. It is safe for concurrent use.
type Runtime struct {
	fleet *Fleet
	id    string
	// profile is what the process was started with.
	profile runtime.Profile
	burst   burst
	// builtIns are the names of the CLI's own tools and commands; nil until they are asked for.
	builtIns atomic.Pointer[config.BuiltIns]

	mu       sync.RWMutex
	process  *runtime.Runtime
	sessions map[string]*session.Session // by id
	lost     error
	// asked is closed when the CLI has told the names of its own tools and commands; nil while it is not asked.
	asked    chan struct{}
	leaving  bool // it is being replaced: the supervisor has released it
	draining bool // it gets no further session
	// recycling says that a call of Recycle ends it.
	recycling bool

	// told is closed when the sessions know of the end.
	told   chan struct{}
	guests guestCalls
	// fenced says that its confinement differs from the policy's.
	fenced atomic.Bool
	// retiring reports that the bridge is ending the process. Only sweeps use it.
	retiring bool
	// stopping says that the process was asked to end: it gets no further call.
	stopping atomic.Bool
}

// ID returns the id by which the API names the runtime.
func (rt *Runtime) ID() string { return rt.id }

// Process returns the CLI process.
func (rt *Runtime) Process() *runtime.Runtime {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return rt.process
}

// Profile returns what the process was started with.
func (rt *Runtime) Profile() runtime.Profile { return rt.profile }

// Call makes a JSON-RPC call.
func (rt *Runtime) Call(
	ctx context.Context, method string, params []byte, opts ...rpcconn.CallOption,
) (json.RawMessage, error) {
	opts, err := admit(ctx, rt, method, opts)
	if err != nil {
		return nil, err
	}
	result, err := rt.Process().Conn().Call(ctx, method, params, opts...)
	return result, explain(rt.Process(), method, err)
}

// admit checks a call of the caller in ctx and counts it. It returns the options with which it is made.
func admit(
	ctx context.Context, rt *Runtime, method string, opts []rpcconn.CallOption,
) ([]rpcconn.CallOption, error) {
	if err := checkFence(ctx, rt, method); err != nil {
		return nil, err
	}
	if rt.stopping.Load() {
		return nil, errStopping(method)
	}
	release, err := rt.guests.take(ctx, rt.profile.Tenant, method)
	if err == nil && release != nil {
		opts = append(slices.Clip(opts), rpcconn.OnFree(release))
	}
	return opts, err
}

// Start makes a call for the caller in ctx, without waiting for the reply; the end of ctx does not end the call. done is
// called as rpcconn.Conn.Start calls it, unless Start returns an error.
func (rt *Runtime) Start(
	ctx context.Context, method string, params []byte, limit time.Duration, done func(json.RawMessage, error),
	opts ...rpcconn.CallOption,
) error {
	opts, err := admit(ctx, rt, method, opts)
	if err != nil {
		return err
	}
	return rt.Process().Conn().Start(method, params, limit, func(result json.RawMessage, err error) {
		done(result, explain(rt.Process(), method, err))
	}, opts...)
}

// errStopping is the error of calls to a runtime that is ending: it would take an answer, and not continue the turn.
// The session makes the call again.
func errStopping(method string) error {
	return fault.Wrap(rpcconn.ErrNotSent, fault.RuntimeLost, "the runtime is ending").With("method", method)
}

// explain returns the error of a call, as RUNTIME_LOST if the connection ended.
func explain(process *runtime.Runtime, method string, err error) error {
	if err == nil || !errors.Is(err, rpcconn.ErrClosed) {
		return err
	}
	if cause := process.Err(); cause != nil {
		err = errors.Join(err, cause)
	}
	return fault.Wrap(err, fault.RuntimeLost, "the runtime ended during %s", method).With("method", method)
}

// Satellite opens a second connection to the process, for a participant. Events that the CLI sends there are dropped
// unparsed: the session has them from the first connection.
func (rt *Runtime) Satellite(ctx context.Context, participant string, ask session.Asker) (roster.Satellite, error) {
	process := rt.Process()
	if !process.Multi() {
		return nil, fault.New(fault.FeatureDisabled, "canvases and extension identity need a runtime that accepts several "+
			"connections: create the session with runtime_profile.multi_connection").WithField("canvases")
	}
	prefix := rt.id + "-" + participant + "-"
	return process.Connect(ctx, rpcconn.Options{
		MaxDepth: rpcconn.CLIMaxDepth,
		Logger:   rt.fleet.log,
		Request: func(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
			return ask(ctx, prefix+r.ID, r.Method, r.Params)
		},
	})
}

// Route sends a session's events to it. If the runtime has ended, it ends the session's assignment to it instead; if it
// accepts no more sessions, it also returns session.ErrNotAdmitted. So no session enters a runtime after Drain or
// Recycle, also one whose runtime was chosen before.
func (rt *Runtime) Route(s *session.Session) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	switch {
	case rt.lost != nil:
		rt.fleet.table.Remove(s.Key(), rt.profile)
	case (rt.draining || rt.ending()) && rt.sessions[s.ID()] != s:
		rt.fleet.table.Remove(s.Key(), rt.profile)
		return session.ErrNotAdmitted
	default:
		rt.sessions[s.ID()] = s
	}
	return nil
}

// accepts reports whether further sessions may enter the runtime.
func (rt *Runtime) accepts() bool {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return rt.lost == nil && !rt.draining && !rt.ending()
}

// Unroute reverts Route.
func (rt *Runtime) Unroute(s *session.Session) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.sessions[s.ID()] == s {
		delete(rt.sessions, s.ID())
		rt.fleet.table.Remove(s.Key(), rt.profile)
	}
}

// Version returns the CLI's version.
func (rt *Runtime) Version() string { return rt.Process().Info().CLIVersion }

// Err returns why the runtime ended; nil while it runs.
func (rt *Runtime) Err() error {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return rt.lost
}

// TurnCompleted notes that a turn has completed, so that the runtime counts as stable.
func (rt *Runtime) TurnCompleted() { rt.Process().TurnCompleted() }

// Traces reports whether the CLI process exports spans.
func (rt *Runtime) Traces() bool {
	on, _ := strconv.ParseBool(rt.profile.Env["COPILOT_OTEL_ENABLED"])
	return on
}

// Ended is closed when the runtime has ended and its sessions know it.
func (rt *Runtime) Ended() <-chan struct{} { return rt.told }

// Proto returns the runtime as the API describes it.
func (rt *Runtime) Proto() *bridgev1.RuntimeInfo {
	process := rt.Process()
	info := process.Info()
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	out := &bridgev1.RuntimeInfo{
		RuntimeId: rt.id, State: bridgev1.RuntimeState_RUNTIME_STATE_READY, CliVersion: info.CLIVersion,
		Pid: int64(info.Peer.PID), StartTime: timestamppb.New(info.StartedAt), LoadedSessions: int32(len(rt.sessions)),
		ProfileId: placement.Key(rt.profile), Index: int32(rt.profile.Shard),
	}
	if rt.lost != nil {
		out.State, out.Cause = bridgev1.RuntimeState_RUNTIME_STATE_DOWN, rt.lost.Error()
		return out
	}
	switch {
	case rt.ending():
		out.State = bridgev1.RuntimeState_RUNTIME_STATE_STOPPING
	case rt.draining:
		out.State = bridgev1.RuntimeState_RUNTIME_STATE_DRAINING
	}
	out.RssBytes = process.RSS()
	if health := process.Health(); !health.CheckedAt.IsZero() {
		out.Latency = durationpb.New(health.Latency)
	}
	return out
}

// session returns the session of an id, nil if the runtime has not loaded it.
func (rt *Runtime) session(id []byte) *session.Session {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return rt.sessions[string(id)]
}

// loaded returns the sessions that the runtime has loaded.
func (rt *Runtime) loaded() []*session.Session {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return slices.AppendSeq(make([]*session.Session, 0, len(rt.sessions)), maps.Values(rt.sessions))
}

// has reports whether the runtime has the session of the key loaded.
func (rt *Runtime) has(key string) bool {
	return slices.ContainsFunc(rt.loaded(), func(s *session.Session) bool { return s.Key() == key })
}

// ended tells the sessions that their runtime is gone.
func (rt *Runtime) ended(cause error) {
	if cause == nil {
		cause = fault.New(fault.RuntimeLost, "the runtime was stopped")
	}
	f := rt.fleet
	rt.mu.Lock()
	sessions := rt.sessions
	rt.sessions, rt.lost = map[string]*session.Session{}, cause
	rt.undrain()
	for id := range sessions {
		f.table.Remove(session.Key(rt.profile.Tenant, id), rt.profile)
	}
	rt.mu.Unlock()
	var wanted []*session.Session
	for _, s := range sessions {
		if s.Loader().RuntimeLost(rt, cause) {
			wanted = append(wanted, s)
		}
	}
	close(rt.told)
	f.Revive(wanted)
	f.runtimes.ended(rt, fault.ReasonOf(cause) == fault.RuntimeStopping) // then it was not needed any more
}
