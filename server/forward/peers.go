package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

const (
	// streamWindow bounds the bytes of a relayed stream that wait at the entry replica for a slow client.
	streamWindow = 256 << 10
	// connWindow bounds the bytes that wait in the connection of two replicas.
	connWindow = 8 << 20

	// probeEvery and probeTimeout bound how long calls wait for a replica that is frozen or cut off, after it was
	// connected, and connectTimeout before that.
	probeEvery     = time.Second
	probeTimeout   = 3 * time.Second
	connectTimeout = 3 * time.Second
	maxReconnect   = time.Second
	// keepaliveTime and keepaliveTimeout are for connections without calls, which are not probed.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	// idleTimeout is how long a connection without calls stays open.
	idleTimeout = 5 * time.Minute

	// maxPeers bounds the connections to other replicas.
	maxPeers = 256
)

var (
	errClosed  = errors.New("the server is stopping")
	errTooMany = fmt.Errorf("there are connections to %d other replicas", maxPeers)
)

// peers are the connections to other replicas: one for each, kept while the replica lives. A connection without calls
// is closed after idleTimeout and opened again by the next call.
type peers struct {
	creds credentials.TransportCredentials
	// alive returns the replicas that are alive. It is called with mu held.
	alive func() []Owner
	log   *slog.Logger

	// probes are the goroutines that probe connections.
	probes sync.WaitGroup

	mu     sync.Mutex
	conns  map[string]*peer
	closed bool
}

// peer is the connection to another replica.
type peer struct {
	*grpc.ClientConn
	// calls counts the calls in progress.
	calls atomic.Int64
	// unwatch ends the probes.
	unwatch context.CancelFunc
}

// done ends a use of the connection for a call.
func (c *peer) done() { c.calls.Add(-1) }

// close closes the connection, which ends its calls.
func (c *peer) close() {
	c.unwatch()
	_ = c.Close() // it fails only for a closed one
}

// answers reports whether the replica answers in time. A connection that fails by itself ends its calls too.
func (c *peer) answers(ctx context.Context) bool {
	probe, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := healthv1.NewHealthClient(c).Check(probe, &healthv1.HealthCheckRequest{})
	return err == nil || probe.Err() == nil || ctx.Err() != nil
}

// get returns the connection to an address for a call, which calls done at its end. It need not be established.
func (p *peers) get(address string) (*peer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	conn := p.conns[address]
	if conn == nil {
		var err error
		if conn, err = p.add(address); err != nil {
			return nil, err
		}
	}
	conn.calls.Add(1)
	return conn, nil
}

// add adds a connection to an address. The caller holds mu.
func (p *peers) add(address string) (*peer, error) {
	p.prune()
	if len(p.conns) >= maxPeers {
		return nil, errTooMany
	}
	conn, err := p.dial(address)
	if err != nil {
		return nil, err
	}
	if p.conns == nil {
		p.conns = map[string]*peer{}
	}
	p.conns[address] = conn
	var ctx context.Context
	ctx, conn.unwatch = context.WithCancel(context.Background())
	p.probes.Go(func() { p.watch(ctx, address, conn) })
	return conn, nil
}

// watch closes a connection whose replica does not answer while it has calls, until ctx ends. A process that is stopped
// by a signal acknowledges what it is sent by its kernel, and the PINGs of gRPC are at least ten seconds apart.
func (p *peers) watch(ctx context.Context, address string, conn *peer) {
	for wait(ctx, probeEvery) {
		if conn.calls.Load() == 0 || conn.answers(ctx) {
			continue
		}
		p.log.LogAttrs(ctx, slog.LevelWarn, "a replica does not answer, its calls are ended",
			slog.String("address", address))
		p.mu.Lock()
		if p.conns[address] == conn {
			delete(p.conns, address)
		}
		p.mu.Unlock()
		conn.close()
		return
	}
}

// prune closes the connections to replicas that are not alive. Their calls have failed or will. It runs when a replica
// is new, so that the connections of former replicas do not accumulate. The caller holds mu.
func (p *peers) prune() {
	alive := map[string]bool{}
	for _, peer := range p.alive() {
		alive[peer.Address] = true
	}
	for address, conn := range p.conns {
		if !alive[address] {
			delete(p.conns, address)
			conn.close()
		}
	}
}

// dial returns a new connection, which connects with its first call.
func (p *peers) dial(address string) (*peer, error) {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(p.creds),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: connectTimeout,
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: maxReconnect}}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout,
			PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec.New()), grpc.MaxCallRecvMsgSize(math.MaxInt32),
			grpc.MaxCallSendMsgSize(math.MaxInt32)))
	return &peer{ClientConn: conn}, err
}

// close closes all connections, which ends their calls.
func (p *peers) close() {
	p.mu.Lock()
	conns := p.conns
	p.conns, p.closed = nil, true
	p.mu.Unlock()
	for _, conn := range conns {
		conn.close()
	}
	p.probes.Wait()
}
