// Package web serves gRPC services over HTTP/1.1 and HTTP/2 for browsers, curl and other programs without gRPC: the
// Connect protocol, gRPC-Web, and server streams as lines of JSON or as server-sent events. It needs no generated
// code: it reads the services' descriptors, and their calls go through the interceptors of the gRPC server.
//
// The package starts no goroutines. call.mu guards the response metadata of a call, and calls.mu the end of the
// handler.
package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/account"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

// Config configures a Handler. Optional fields have the documented default.
type Config struct {
	// Register registers the services to serve; each must have its descriptor in protoregistry.GlobalFiles.
	Register func(grpc.ServiceRegistrar)
	// Unary and Stream are called for each call, like the interceptors of a gRPC server. By default there are none.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
	// Unreadable is called instead of Unary for a request that cannot be read, with the reason. It returns the error of
	// the call, which is that of the caller's rights before the reason. By default it is the reason.
	Unreadable func(ctx context.Context, method string, reason error) error
	// Status returns the status that callers receive for an error of a call. The default is status.Of of package
	// server/status, which adds details.
	Status func(error) *grpcstatus.Status
	// Enter returns the context of a request's call, with the caller's peer, and the account of its memory; nil if
	// nothing counts it. It is called before the request's body is read. By default the context is the request's own.
	Enter func(ctx context.Context, r *http.Request) (context.Context, *account.Account, error)
	// Pages serves the requests by GET and HEAD that are for no method and not below /auth/. It needs no credentials:
	// pages must not contain secrets. By default there are no pages.
	Pages http.Handler
	// Auth serves the requests below /auth/ of the listener's own pages. Their context has the metadata of a call. By
	// default there are none.
	Auth http.Handler
	// Stats measures calls. By default they are not measured.
	Stats stats.Handler
	// MaxRecvBytes is the size of the largest accepted message, after decompression. The default is 16 MiB.
	MaxRecvBytes int
	// BodyTimeout is how long a single request may pause while it is sent. The default is 30 s.
	BodyTimeout time.Duration
	// Origins are the origins of other web pages that may call, like "https://example.com". By default only pages of
	// the server itself may.
	Origins []string
	// AnyHost accepts any name in the Host header. By default only localhost, 127.0.0.1 and [::1] are accepted, because
	// a web page could make other names lead to this machine.
	AnyHost bool
}

const (
	defaultMaxRecvBytes = 16 << 20
	defaultBodyTimeout  = 30 * time.Second
	// compressMinBytes is the size from which replies are compressed.
	compressMinBytes = 1 << 10
)

// Handler serves calls over HTTP.
type Handler struct {
	config  Config
	origins origins
	mux     *http.ServeMux
	// methods are the served methods, by path.
	methods map[string]*method
	errors  *connecthttp.ErrorWriter
	calls   calls
}

// New returns a handler for the services of c.
func New(c Config) (*Handler, error) {
	if c.MaxRecvBytes == 0 {
		c.MaxRecvBytes = defaultMaxRecvBytes
	}
	if c.BodyTimeout == 0 {
		c.BodyTimeout = defaultBodyTimeout
	}
	if c.Enter == nil {
		c.Enter = func(ctx context.Context, _ *http.Request) (context.Context, *account.Account, error) {
			return ctx, nil, nil
		}
	}
	if c.Status == nil {
		c.Status = func(err error) *grpcstatus.Status {
			st, _ := status.Of(err)
			return st
		}
	}
	if c.Unreadable == nil {
		c.Unreadable = func(_ context.Context, _ string, reason error) error { return reason }
	}
	allowed, err := newOrigins(c.Origins, c.AnyHost)
	if err != nil {
		return nil, err
	}
	h := &Handler{config: c, origins: allowed, mux: http.NewServeMux(), methods: map[string]*method{},
		errors: connecthttp.NewErrorWriter()}
	server := connect.NewServer()
	r := &registrar{}
	c.Register(r)
	if err := errors.Join(r.errs...); err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	for _, m := range r.methods {
		server.Register(connect.Method{Spec: m.spec, Handler: h.handle(m)})
		h.methods[m.spec.Procedure] = m
	}
	connecthttp.Mount(h.mux, server,
		connecthttp.WithCodecs(binaryCodec{}, jsonCodec{}),
		connecthttp.WithCompressors(newUnpacker()),
		connecthttp.WithCompressMinBytes(compressMinBytes),
		connecthttp.WithReadMaxBytes(c.MaxRecvBytes))
	return h, nil
}

// Wait waits for the calls in progress, and refuses new ones.
func (h *Handler) Wait() { h.calls.wait() }

// calls are the calls in progress.
type calls struct {
	mu    sync.Mutex
	over  bool
	group sync.WaitGroup
}

// begin counts a call, unless the last one was waited for.
func (c *calls) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.group.Add(1)
	}
	return !c.over
}

func (c *calls) wait() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.group.Wait()
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.calls.begin() {
		h.refuse(w, r, fault.New(fault.Draining, "the server is stopping"))
		return
	}
	defer h.calls.group.Done()
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case h.config.Auth != nil && strings.HasPrefix(r.URL.Path, authPath):
		h.auth(w, r)
		return
	case h.isPage(r):
		h.page(w, r)
		return
	}
	done, err := h.origins.check(w, r)
	switch {
	case err != nil:
		h.refuse(w, r, err)
		return
	case done:
		return
	case isGRPC(r):
		h.refuse(w, r, grpcstatus.Error(codes.Unimplemented,
			"this address serves Connect, gRPC-Web and JSON; gRPC has addresses of its own (--listen)"))
		return
	}
	if !ownPage(r) {
		r.Header.Del("Cookie") // a cookie is a credential of the listener's own pages
	}
	ctx, memory, err := h.config.Enter(withMetadata(r), r)
	defer memory.End()
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	r = r.WithContext(context.WithValue(ctx, accountKey{}, memory))
	m := h.methods[r.URL.Path]
	switch {
	case m == nil:
		h.other(w, r)
		return
	case r.Method == http.MethodPost && !readable(r):
		unsupported(w, r)
		return
	case wantsLines(r, m):
		h.lines(w, r, m)
		return
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = h.bodyOf(w, r, h.timeoutOf(m))
	}
	h.mux.ServeHTTP(w, r)
}

// other answers requests for no method: calls with the error for unknown methods. The HTTP status is 404, unless the
// protocol sends its own status.
func (h *Handler) other(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !isProcedure(r.URL.Path) {
		http.NotFound(w, r)
		return
	}
	method := r.URL.Path
	h.refuse(notFound{w}, r, fault.New(fault.MethodUnknown, "the server has no method %q", method).With("method", method))
}

// notFound replaces the HTTP status that Connect has for UNIMPLEMENTED. Its clients map 404 to this code too.
type notFound struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w notFound) WriteHeader(status int) {
	if status == http.StatusNotImplemented {
		status = http.StatusNotFound
	}
	w.ResponseWriter.WriteHeader(status)
}

// refuse answers a request with an error in the form of its protocol.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	// It fails only if the client has gone.
	_ = h.errors.Write(w, r, h.problem(err))
}
