package shim

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Bounds of a connection.
const (
	// maxServed and maxWaiting bound a program's requests; one more is refused.
	maxServed  = 512
	maxWaiting = 4096
	// maxAsked bounds the concurrent requests to a program.
	maxAsked = 4096
)

// conn is one JSON-RPC connection of a program.
type conn struct {
	server  *Server
	rpc     *rpcconn.Conn
	log     *slog.Logger
	trusted bool
	// life ends with the connection.
	life context.Context
	end  context.CancelFunc

	sessions *sessions
	feeds    sync.WaitGroup // the goroutines of watch.go

	mu        sync.Mutex
	connected bool // it has shown the token
	telemetry bool // it is forwarded
}

func newConn(ctx context.Context, s *Server, rwc io.ReadWriteCloser, trusted bool) *conn {
	c := &conn{server: s, log: s.config.Logger, trusted: trusted, sessions: newSessions()}
	c.life, c.end = context.WithCancel(ctx)
	ready := make(chan struct{})
	c.rpc = rpcconn.New(rwc, rpcconn.Options{
		Request: func(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
			<-ready
			return c.request(ctx, r)
		},
		Arrive:            lane,
		MaxRequestWorkers: maxServed, MaxRequestQueue: maxWaiting, MaxInFlight: maxAsked,
		Strict: true,
		Logger: s.config.Logger,
	})
	close(ready)
	return c
}

// serve runs the connection to its end.
func (c *conn) serve(ctx context.Context) error {
	c.feeds.Go(c.watchSessions)
	c.feeds.Go(c.watchHostEvents)
	select {
	case <-c.rpc.Done():
	case <-ctx.Done():
	case <-c.server.end.answered.Done():
		awaitLinger(ctx, c.server.config.linger, c.rpc.Done())
		flush, cancel := context.WithTimeout(ctx, leaveTimeout)
		c.rpc.Flush(flush) // a failure is reported to its caller
		cancel()
	}
	c.disposeHosts(context.WithoutCancel(ctx))
	c.sessions.leave()
	_ = c.rpc.Close()
	c.end()
	c.rpc.Wait()
	c.feeds.Wait()
	if err := c.rpc.Err(); !ended(err) {
		return err
	}
	return nil
}

// ordered are the methods whose order matters to a program that does not wait for replies.
var ordered = map[string]bool{
	"session.create": true, "session.resume": true, "session.destroy": true, "session.detach": true,
	"session.send": true, "session.sendMessages": true, "session.abort": true, "session.tools.set": true,
	"session.model.switchTo": true, "session.mode.set": true, "session.options.update": true,
	"llmInference.httpResponseStart": true, "llmInference.httpResponseChunk": true,
	"connect": true, "sessionFs.setProvider": true, "llmInference.setProvider": true,
}

// lane keeps requests in order whose order matters: those about a session, or a model
// request.
func lane(r *rpcconn.Request) string {
	if !ordered[r.Method] {
		return ""
	}
	id := about(r.Params)
	if id.SessionID == "" && id.RequestID == "" {
		return "process"
	}
	return id.SessionID + "\x00" + id.RequestID
}

// subject is what parameters are about.
type subject struct {
	SessionID string `json:"sessionId"`
	RequestID string `json:"requestId"`
}

// about reads what parameters are about; what is not understood is about nothing.
func about(params []byte) (s subject) {
	_ = json.Unmarshal(params, &s)
	return s
}

// request serves a request of the program.
func (c *conn) request(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	if err := c.allowed(r.Method); err != nil {
		return nil, err
	}
	if own, ok := ownMethods[r.Method]; ok {
		result, err := own(c, ctx, r)
		if err != nil {
			return nil, rpcError(err, r.Method)
		}
		return result, nil
	}
	result, err := c.call(ctx, r.Method, r.Params)
	if err != nil {
		return nil, rpcError(err, r.Method)
	}
	return result, nil
}

// allowed refuses calls before connect has shown the token, and after runtime.shutdown, which
// itself may come again.
func (c *conn) allowed(method string) error {
	c.mu.Lock()
	known := c.trusted || c.connected || c.server.config.Token == "" || method == "connect"
	c.mu.Unlock()
	switch {
	case !known:
		return &rpcconn.Error{Code: codeAuthRequired, Message: "AUTHENTICATION_REQUIRED"}
	case !c.server.end.begun.Load() || method == "runtime.shutdown":
		return nil
	case ownMethods[method] == nil && c.server.tables.methods[method] == nil:
		return unhandled(method)
	}
	return shuttingDown()
}

// profile is what the runtimes of the connection's sessions are to be like; nil for the
// bridge's own.
func (c *conn) profile() *bridgev1.RuntimeProfile {
	c.server.mu.Lock()
	p := proto.CloneOf(c.server.profile)
	c.server.mu.Unlock()
	p.Telemetry = p.Telemetry || c.forwarding()
	if proto.Size(p) == 0 {
		return nil
	}
	return p
}
