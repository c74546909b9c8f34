package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

// Extra is an additional connection to a runtime. For the CLI it is another client. It ends with the runtime at the
// latest.
type Extra struct {
	r    *Runtime
	conn *rpcconn.Conn
}

// Multi reports whether the runtime accepts additional connections.
func (r *Runtime) Multi() bool {
	_, ok := r.transport.(multiplexed)
	return ok
}

// Connect opens an additional connection and performs the handshake. The caller must Close it.
func (r *Runtime) Connect(ctx context.Context, o rpcconn.Options) (*Extra, error) {
	m, ok := r.transport.(multiplexed)
	if !ok {
		return nil, errOneConnection
	}
	rwc, err := m.Another(ctx)
	if err != nil {
		return nil, r.gone(err)
	}
	x := &Extra{r: r, conn: rpcconn.New(rwc, o)}
	if !r.extras.add(x) {
		x.Close()
		return nil, r.gone(rpcconn.ErrClosed)
	}
	if _, err := handshake(ctx, x.conn,
		connectParams{Token: r.transport.Peer().Token, TaskKinds: taskKinds}, r.transport.Peer()); err != nil {
		x.Close()
		return nil, r.gone(err)
	}
	return x, nil
}

// gone converts an error of a connection to a runtime that may have ended.
func (r *Runtime) gone(err error) error {
	if isDone(r.lost) || errors.Is(err, rpcconn.ErrClosed) {
		return fault.Wrap(err, fault.RuntimeLost, "the runtime has ended")
	}
	return asFault(err, fault.RuntimeDialFailed, "another connection to the runtime")
}

// Call makes a JSON-RPC call.
func (x *Extra) Call(ctx context.Context, method string, params []byte) (json.RawMessage, error) {
	return x.conn.Call(ctx, method, params)
}

// Done is closed when the connection has ended.
func (x *Extra) Done() <-chan struct{} { return x.conn.Done() }

// Close ends the connection and waits for its goroutines.
func (x *Extra) Close() {
	_ = x.conn.Close()
	x.conn.Wait()
	x.r.extras.remove(x)
}

// extras are the additional connections of a runtime.
type extras struct {
	mu    sync.Mutex
	over  bool
	conns map[*Extra]struct{}
}

// errOneConnection is the error of a runtime that accepts no additional connections.
var errOneConnection = fault.New(fault.FeatureDisabled, "the runtime accepts only one connection")

func (e *extras) add(x *Extra) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return false
	}
	if e.conns == nil {
		e.conns = map[*Extra]struct{}{}
	}
	e.conns[x] = struct{}{}
	return true
}

func (e *extras) remove(x *Extra) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, x)
}

// end closes all connections and refuses new ones.
func (e *extras) end() {
	e.mu.Lock()
	e.over = true
	open := make([]*Extra, 0, len(e.conns))
	for x := range e.conns {
		open = append(open, x)
	}
	e.mu.Unlock()
	for _, x := range open {
		x.Close()
	}
}
