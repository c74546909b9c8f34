package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/internal/loopback"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
	"github.com/copilot-grpc/copilot-grpc/server/login"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
)

// Service is a gRPC service that the server registers.
type Service = rpc.Service

// Drainer is notified that the server is about to stop. It ends its streams with a last message. When it returns, or
// its context ends, the server continues to stop.
type Drainer interface {
	Drain(context.Context) error
}

// Config configures a server. Optional fields have the documented default.
type Config struct {
	// Listen are the addresses to listen on; at least one. "unix:PATH" is a socket that only the server's user may
	// connect to, "HOST:PORT" a TCP port. An address outside the loopback interface requires TLS and Policy.
	Listen []string
	// XDS lets a control plane configure the TCP ports of Listen: the bootstrap file that GRPC_XDS_BOOTSTRAP names says
	// where it is. It requires TLS, which applies where the control plane configures none, and Policy.
	XDS bool
	// Web, if set, adds a listener for browsers, curl and clients of Connect and gRPC-Web.
	Web *Web
	// Token is the token that callers over TCP must send as "authorization: Bearer TOKEN", at least 16 characters. By
	// default it is random; Server.Token returns it. With Policy there is no such token.
	Token string
	// TLS configures the certificates of TCP ports. By default TCP ports do not use TLS.
	TLS *TLS
	// Policy determines the rights of callers. By default callers on a unix socket or with Token are the host's
	// owner, and all others are refused.
	Policy *policy.Store
	// Confining returns an error while a process of a tenant runs with another confinement than Policy requires.
	// Calls that use the host then fail with it. By default it is never the case.
	Confining func(tenant string) error
	// Forward, if set, makes the server a replica of a cluster: it relays calls to the replicas that have their
	// sessions, and serves the calls that others relay to it on a separate listener.
	Forward *forward.Config
	// Services are the services to serve, in addition to health and reflection; at least one.
	Services []Service
	// Drainer ends streams before the server stops. By default there is none.
	Drainer Drainer
	// Ready returns why the server should get no calls now; nil if it should. The health service calls it. By default
	// the server is always ready.
	Ready func() error
	// Telemetry receives data about calls. By default there is none.
	Telemetry *Telemetry
	// Audit receives calls that use the host, change rights, or are refused. By default they are not recorded.
	Audit audit.Sink
	// Logger receives the server's log. The default is slog.Default().
	Logger *slog.Logger
	// LogRequests adds each call's request to the log, without the fields that the contract marks as secret. Prompts
	// are not marked as secret.
	LogRequests bool
	// MaxRecvBytes is the size of the largest accepted message. The default is 16 MiB.
	MaxRecvBytes int
	// MaxConcurrentStreams bounds the concurrent calls of a connection; further ones wait in the client. The default
	// is 1024.
	MaxConcurrentStreams uint32
	// Connections bounds connections over TCP.
	Connections Connections
	// MaxStrangers bounds the unauthenticated TCP connections; beyond it the oldest is closed. StrangerTime is how
	// long a connection may be unauthenticated. The defaults are 2048 and 30 s.
	MaxStrangers int
	StrangerTime time.Duration
	// DrainTimeout bounds the time of Drainer. The default is 30 s.
	DrainTimeout time.Duration
	// StopTimeout is how long calls may run after that before they are cancelled. The default is 5 s.
	StopTimeout time.Duration
	// ReturnTimeout is how long the handlers of cancelled calls may take to return. The default is StopTimeout.
	ReturnTimeout time.Duration
}

// Connections bounds connections over TCP. The zero value derives the bounds from the process's limit of open files.
type Connections struct {
	// Max is the limit of connections. Beyond it the server closes one of the caller with the most connections. The
	// default and maximum is the limit of open files, less a quarter of it (64 to 1024) for the rest of the server.
	Max int
	// MaxAge is the maximum age of a connection, plus or minus a tenth: then the server asks its streams to resume on
	// another one. Zero sets no limit.
	MaxAge time.Duration
	// AgeGrace is how long its calls may continue after that before they are cancelled.
	AgeGrace time.Duration
}

// Web configures a listener for browsers. TLS, Policy, Token and the limits apply to it as to other TCP ports.
type Web struct {
	// Listen is the TCP port to listen on, "HOST:PORT". An address outside the loopback interface requires TLS and
	// Policy.
	Listen string
	// Origins are the origins of other web pages that may call, like "https://example.com". By default only pages of
	// the listener itself may.
	Origins []string
	// URL is the URL by which browsers reach the listener, for links. The default is the address of the listener, with
	// the machine's name if it listens on all addresses.
	URL string
	// Logins has the logins of browsers. By default they end with the server.
	Logins *login.Store
	// Pages serves the requests by GET and HEAD that are no calls, like a console. It needs no credentials: pages must
	// not contain secrets. By default there are no pages.
	Pages http.Handler
}

// Defaults of Config.
const (
	DefaultMaxRecvBytes         = 16 << 20
	DefaultMaxConcurrentStreams = 1024
	DefaultDrainTimeout         = 30 * time.Second
	DefaultStopTimeout          = 5 * time.Second
)

const (
	minToken   = 16
	unixPrefix = "unix:"
)

// complete validates c and fills in its defaults.
func (c *Config) complete() error {
	if len(c.Listen) == 0 {
		return errors.New("no address to listen on")
	}
	if len(c.Services) == 0 {
		return errors.New("no services to serve")
	}
	if c.XDS && (c.TLS == nil || c.Policy == nil) {
		return errors.New("xDS requires TLS and a policy: without them the control plane could turn both off")
	}
	tcp := false
	for _, address := range c.Listen {
		if err := CheckAddress(address, c.TLS != nil && c.Policy != nil); err != nil {
			return err
		}
		tcp = tcp || !strings.HasPrefix(address, unixPrefix)
	}
	if c.XDS && !tcp {
		return errors.New("xDS requires a TCP address to listen on")
	}
	if c.Web != nil {
		if err := checkTCP(c.Web.Listen, c.TLS != nil && c.Policy != nil); err != nil {
			return fmt.Errorf("web: %w", err)
		}
		tcp = true
	}
	if c.Forward != nil {
		if err := c.Forward.Validate(); err != nil {
			return err
		}
	}
	switch {
	case c.Policy != nil && c.Token != "":
		return errors.New("a server token cannot be used with a policy: give a static token a role in the tenant " +
			"\"host\"")
	case c.Policy != nil:
	case tcp && c.Token == "":
		c.Token = rand.Text()
	case c.Token != "" && len(c.Token) < minToken:
		return fmt.Errorf("the token has %d characters, fewer than %d", len(c.Token), minToken)
	}
	if c.MaxRecvBytes < 0 || c.MaxStrangers < 0 || c.StrangerTime < 0 || !c.Connections.valid() || c.DrainTimeout < 0 ||
		c.StopTimeout < 0 || c.ReturnTimeout < 0 {
		return errors.New("sizes and timeouts must not be negative")
	}
	c.MaxRecvBytes = cmp.Or(c.MaxRecvBytes, DefaultMaxRecvBytes)
	c.MaxConcurrentStreams = cmp.Or(c.MaxConcurrentStreams, DefaultMaxConcurrentStreams)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.StopTimeout = cmp.Or(c.StopTimeout, DefaultStopTimeout)
	c.ReturnTimeout = cmp.Or(c.ReturnTimeout, c.StopTimeout)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Telemetry = cmp.Or(c.Telemetry, &Telemetry{})
	c.Telemetry.Observer = cmp.Or(c.Telemetry.Observer, observe.Silent())
	return nil
}

func (c Connections) valid() bool {
	return c.Max >= 0 && c.MaxAge >= 0 && c.AgeGrace >= 0
}

// CheckAddress validates an address of Config.Listen without listening on it. wide permits addresses that other
// machines can reach, because there are TLS and identities.
func CheckAddress(address string, wide bool) error {
	path, ok := strings.CutPrefix(address, unixPrefix)
	switch {
	case !ok:
		return checkTCP(address, wide)
	case path == "":
		return fmt.Errorf("address %q has no path", address)
	}
	return nil
}

// checkTCP refuses a TCP address that other machines can reach, unless wide permits it.
func checkTCP(address string, wide bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address %q is neither unix:PATH nor HOST:PORT: %w", address, err)
	}
	if !wide && !loopback.Host(host) {
		return fmt.Errorf("address %q is not on the loopback interface: without TLS (--tls-cert, --tls-key) and "+
			"identities "+
			"(--policy) only localhost, 127.0.0.1 and [::1] are allowed", address)
	}
	return nil
}
