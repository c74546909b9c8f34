package server

import (
	"context"
	"math"
	"net"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// minReplicaPingTime is the shortest interval of PINGs of other replicas.
const minReplicaPingTime = 5 * time.Second

// replica connects the server with the other replicas of its cluster. The methods of a nil replica do nothing.
type replica struct {
	forwarder *forward.Forwarder
	// The others are nil if there can be no other replica.
	listener    net.Listener
	grpc        *grpc.Server
	credentials *forward.Credentials
}

// listens reports whether there is a listener for other replicas.
func (r *replica) listens() bool { return r != nil && r.listener != nil }

// newReplica opens the listener for other replicas. Calls that they relay have been measured, audited and limited where
// they entered, and only their requests are checked again: this replica's policy may have stricter fields.
func (s *Server) newReplica(ctx context.Context, c *forward.Config) (*replica, error) {
	if c.Listen == "" {
		return &replica{forwarder: forward.New(c, nil, s.config.Logger)}, nil
	}
	creds, err := forward.NewCredentials(c.TLS, s.config.Logger)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return nil, &ListenError{c.Listen, err}
	}
	r := &replica{listener: l, credentials: creds, forwarder: forward.New(c, creds, s.config.Logger)}
	ch := &chain{panicked: s.reporter.rescue, router: forward.NewReceiver(c),
		layers: []layer{{enter: traced}, {leave: s.reporter.ended},
			{enter: r.admit(s.gate)}, trail}}
	r.grpc = grpc.NewServer(append(commonOptions(minReplicaPingTime),
		grpc.Creds(creds.Listener()),
		grpc.UnaryInterceptor(probed(ch.unary)),
		grpc.StreamInterceptor(ch.stream),
		grpc.MaxRecvMsgSize(math.MaxInt32), // the entry replica has a limit
		grpc.MaxConcurrentStreams(math.MaxUint32),
		grpc.MaxHeaderListSize(2*maxHeaderBytes), // the caller's and its identity
	)...)
	s.register(r.grpc)
	return r, nil
}

// probed serves the probes of other replicas without the layers: they have no caller, and are not worth a line in a log.
func probed(layers grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if info.FullMethod == healthv1.Health_Check_FullMethodName {
			return handler(ctx, request)
		}
		return layers(ctx, request, info, handler)
	}
}

// traced uses the trace context of the entry replica.
func traced(ctx context.Context, _ *call) (context.Context, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	return observe.Extract(ctx, md.Get), nil
}

// admit returns the enter function of the layer that admits the calls of other replicas, with the callers that these
// have authenticated. The caller's rights to the method, to the fields of its requests and to shared sessions are
// checked here too.
func (r *replica) admit(g *gate) func(context.Context, *call) (context.Context, error) {
	return func(ctx context.Context, c *call) (context.Context, error) {
		p, ok := peer.FromContext(ctx)
		if !ok {
			return ctx, fault.New(fault.Unauthenticated, "only replicas may call this listener")
		}
		if err := r.credentials.Check(p.AuthInfo); err != nil {
			return ctx, err
		}
		who, err := forward.CallerOf(ctx)
		if err != nil {
			return ctx, err
		}
		who.Class = policy.Class(c.method)
		if who.Tenant != caller.HostTenant {
			confined, err := g.confines(who.Tenant)
			if err != nil {
				return ctx, err
			}
			who.Confined = who.Confined && confined
		}
		c.caller = who
		if err := who.Require(who.Class, c.method); err != nil {
			return ctx, err
		}
		return g.enter(ctx, c)
	}
}

// confines reports whether a sandbox of this replica confines a tenant, which must exist.
func (g *gate) confines(tenant string) (bool, error) {
	if now := g.now(); now != nil {
		if t, ok := now.Tenant(tenant); ok {
			return len(t.Sandbox) > 0, nil
		}
	}
	return false, fault.New(fault.Forbidden, "the replica that has the session has no tenant %q", tenant)
}

// drain ends the relayed streams.
func (r *replica) drain() {
	if r != nil {
		r.forwarder.Drain()
	}
}

// shutdown waits for the calls of other replicas, without a limit.
func (r *replica) shutdown() {
	if r.listens() {
		r.grpc.GracefulStop()
	}
}

// stop cancels the calls of other replicas and closes the listener.
func (r *replica) stop() {
	if r.listens() {
		_ = r.listener.Close() // before Serve, the gRPC server does not know it
		r.grpc.Stop()
	}
}

// close closes the connections to other replicas.
func (r *replica) close() {
	if r != nil {
		r.forwarder.Close()
	}
}

// ReplicaAddr returns the address of the listener for other replicas; nil if there is none.
func (s *Server) ReplicaAddr() net.Addr {
	if !s.replica.listens() {
		return nil
	}
	return s.replica.listener.Addr()
}
