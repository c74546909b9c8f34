package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/internal/loopback"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
)

// Service is something the server serves.
type Service = rpc.Service

// Drainer is told that the server is about to stop. It says goodbye on its streams and
// ends them; when it returns, or its context ends, the server goes on without it.
type Drainer interface {
	Drain(context.Context) error
}

// Config is what a server needs. The zero value of an optional member stands for the
// default given there.
type Config struct {
	// Listen are the addresses to listen on; at least one. "unix:PATH" is a socket that
	// only the own user may connect to, "HOST:PORT" a TCP port. One that is not on the
	// loopback interface takes TLS and Policy.
	Listen []string
	// Token is what callers over TCP must send as "authorization: Bearer TOKEN", at
	// least 16 characters. Default: a random one, which Server.Token tells. With Policy
	// there is none.
	Token string
	// TLS are the certificates of TCP ports. Default: TCP ports speak no TLS.
	TLS *TLS
	// Policy says who may do what. Default: whoever can connect to a unix socket or has
	// Token is the host's owner, and nobody else may do anything.
	Policy *policy.Store
	// Confining returns an error while a process of a tenant runs with another confinement than
	// Policy has for it. Calls that touch the host fail with it. Default: no process ever does.
	Confining func(tenant string) error
	// Services are what is served, beside health and reflection; at least one.
	Services []Service
	// Drainer ends what would keep the server from stopping. Default: nothing does.
	Drainer Drainer
	// Ready says why the server should get no calls now, nil if it should: the health service
	// asks while the server runs. Default: it always should.
	Ready func() error
	// Telemetry is told of calls. Default: nobody is.
	Telemetry *Telemetry
	// Audit keeps the calls that touch the host, change what is allowed, or are refused.
	// Default: nothing is kept.
	Audit audit.Sink
	// Logger takes the server's log. Default: slog.Default().
	Logger *slog.Logger
	// LogRequests adds each call's request to the log, without what the contract marks
	// as secret. Prompts are not among that.
	LogRequests bool
	// MaxRecvBytes is the largest message that is taken. Default: 16 MiB.
	MaxRecvBytes int
	// MaxConcurrentStreams is how many calls a connection may have at once; more wait
	// at the caller. Default: 1024.
	MaxConcurrentStreams uint32
	// Connections bounds connections over TCP.
	Connections Connections
	// MaxStrangers is how many connections over TCP there may be on which nobody has proven
	// yet who he is, beyond which the oldest ends; StrangerTime how long one may be such.
	// Default: 2048, 30 s.
	MaxStrangers int
	StrangerTime time.Duration
	// DrainTimeout is how long Drainer may take. Default: 30 s.
	DrainTimeout time.Duration
	// StopTimeout is how long calls may take to end after that, before they are cut
	// off, and then again how long their handlers may take to notice. Default: 5 s.
	StopTimeout time.Duration
}

// Connections bounds connections over TCP. The zero value sets the bounds that follow from how
// many files the process may have open.
type Connections struct {
	// Max is how many there may be. When there are more, one of the caller that has most of them
	// is closed. Default, and at most: the limit of open files without ReservedFiles.
	Max int
	// ReservedFiles is how many files connections leave to the rest of the server. Default: a
	// quarter of the limit, between 64 and 1024.
	ReservedFiles int
	// MaxAge is how long a connection may live, give or take a tenth: then its streams are asked
	// to resume on another one. Zero sets no limit.
	MaxAge time.Duration
	// AgeGrace is how long its calls may go on after that before they are cut off.
	AgeGrace time.Duration
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

// complete checks c and fills in its defaults.
func (c *Config) complete() error {
	if len(c.Listen) == 0 {
		return errors.New("no address to listen on")
	}
	if len(c.Services) == 0 {
		return errors.New("no service to serve")
	}
	tcp := false
	for _, address := range c.Listen {
		if err := CheckAddress(address, c.TLS != nil && c.Policy != nil); err != nil {
			return err
		}
		tcp = tcp || !strings.HasPrefix(address, unixPrefix)
	}
	switch {
	case c.Policy != nil && c.Token != "":
		return errors.New("with a policy there is no token of the server: give a static token a role in the tenant \"host\"")
	case c.Policy != nil:
	case tcp && c.Token == "":
		c.Token = rand.Text()
	case c.Token != "" && len(c.Token) < minToken:
		return fmt.Errorf("the token has %d characters, fewer than %d", len(c.Token), minToken)
	}
	if c.MaxRecvBytes < 0 || c.MaxStrangers < 0 || c.StrangerTime < 0 || !c.Connections.valid() || c.DrainTimeout < 0 || c.StopTimeout < 0 {
		return errors.New("sizes and timeouts must not be negative")
	}
	c.MaxRecvBytes = cmp.Or(c.MaxRecvBytes, DefaultMaxRecvBytes)
	c.MaxConcurrentStreams = cmp.Or(c.MaxConcurrentStreams, DefaultMaxConcurrentStreams)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.StopTimeout = cmp.Or(c.StopTimeout, DefaultStopTimeout)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Telemetry = cmp.Or(c.Telemetry, &Telemetry{})
	c.Telemetry.Observer = cmp.Or(c.Telemetry.Observer, observe.Silent())
	return nil
}

func (c Connections) valid() bool {
	return c.Max >= 0 && c.ReservedFiles >= 0 && c.MaxAge >= 0 && c.AgeGrace >= 0
}

// CheckAddress tells what is wrong with an address of Config.Listen, as far as that can be
// told without listening on it. wide says that it may be reached from elsewhere, since there
// are TLS and identities.
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

// checkTCP refuses a TCP address that others could reach, unless they may.
func checkTCP(address string, wide bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address %q is neither unix:PATH nor HOST:PORT: %w", address, err)
	}
	if !wide && !loopback.Host(host) {
		return fmt.Errorf("address %q is not on the loopback interface: without TLS (--tls-cert, --tls-key) and identities "+
			"(--policy) only localhost, 127.0.0.1 and [::1] are allowed", address)
	}
	return nil
}
