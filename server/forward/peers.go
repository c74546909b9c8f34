package forward

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

const (
	// streamWindow bounds the bytes of a relayed stream that wait at the entry replica for a slow client.
	streamWindow = 256 << 10
	// connWindow bounds the bytes that wait in the connection of two replicas.
	connWindow = 8 << 20

	// keepaliveTime and keepaliveTimeout bound how long calls wait for a replica that is frozen or cut off.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	connectTimeout   = 3 * time.Second
	maxReconnect     = time.Second
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
	// alive returns the replicas that are alive.
	alive func() []Owner

	mu     sync.Mutex
	conns  map[string]*grpc.ClientConn
	closed bool
}

// get returns the connection to an address. It need not be established.
func (p *peers) get(address string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	conn, closed := p.conns[address], p.closed
	p.mu.Unlock()
	switch {
	case closed:
		return nil, errClosed
	case conn != nil:
		return conn, nil
	}
	p.prune()
	conn, err := p.dial(address)
	if err != nil {
		return nil, err
	}
	now, err := p.put(address, conn)
	if now != conn {
		_ = conn.Close() // it was never used
	}
	return now, err
}

// put stores a new connection, and returns the one to use.
func (p *peers) put(address string, conn *grpc.ClientConn) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.conns[address]
	switch {
	case p.closed:
		return nil, errClosed
	case before != nil:
		return before, nil
	case len(p.conns) >= maxPeers:
		return nil, errTooMany
	case p.conns == nil:
		p.conns = map[string]*grpc.ClientConn{}
	}
	p.conns[address] = conn
	return conn, nil
}

// prune closes the connections to replicas that are not alive. Their calls have failed or will. It runs when a replica
// is new, so that the connections of former replicas do not accumulate.
func (p *peers) prune() {
	alive := map[string]bool{}
	for _, peer := range p.alive() {
		alive[peer.Address] = true
	}
	var gone []*grpc.ClientConn
	p.mu.Lock()
	for address, conn := range p.conns {
		if !alive[address] {
			gone = append(gone, conn)
			delete(p.conns, address)
		}
	}
	p.mu.Unlock()
	for _, conn := range gone {
		_ = conn.Close() // it fails only for a closed one
	}
}

// dial returns a new connection, which connects with its first call.
func (p *peers) dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address,
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
}

// close closes all connections, which ends their calls.
func (p *peers) close() {
	p.mu.Lock()
	conns := p.conns
	p.conns, p.closed = nil, true
	p.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close() // it fails only for a closed one
	}
}
