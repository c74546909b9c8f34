package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
	"github.com/copilot-grpc/copilot-grpc/server/xds"
)

// maxReply bounds a reply: a page of history has up to 4 MiB.
const maxReply = 64 << 20

// patience is how long commands wait for a server that goes away: longer than the client library needs to notice that a
// server is silent (a minute), and than a restart or a move to another replica takes.
const patience = 2 * time.Minute

// Pauses between the attempts to reach a server that has gone away.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// connection is which server a command calls: the one of --target or --context, else that of the context in use, else
// the one on the local socket.
type connection struct {
	program                *program
	set                    *flags
	target, token, context string
	// server is the server that dial has chosen; name is its context, empty for none.
	server endpoint
	name   string
	// session is the session that the command is about, to find the one that a mistyped id was meant for.
	session string
	// details says that errors are printed with all that the API says of them.
	details bool
	// notices are the messages of the client library.
	notices *notices
}

// connection adds the flags that choose a server, and the one for its token.
func (p *program) connection(f *flags) *connection {
	c := p.address(f)
	f.StringVar(&c.token, "token", "", "bearer `token` for a server on a TCP port; visible to other users as a flag")
	return c
}

// address adds the flags that choose a server.
func (p *program) address(f *flags) *connection {
	c := &connection{program: p, set: f, notices: &notices{out: p.stderr, patience: p.patience}}
	f.StringVar(&c.target, "target", "", "`address` of the server, unix:PATH or HOST:PORT (default: that of the "+
		"context in use, else the local socket)")
	f.StringVar(&c.context, "context", "",
		"`name` of the server, see \"copilot-grpc help context\"; '' is the local socket")
	return c
}

// with calls f with a client of the server, and explains errors.
func (c *connection) with(ctx context.Context, f func(*copilot.Client) error, opts ...copilot.Option) error {
	client, err := c.dial(ctx, opts...)
	if err != nil {
		return err
	}
	defer client.Close()
	return c.failed(ctx, client, f(client))
}

// dial returns a client of the server, which has answered unless an option says otherwise. Its errors are explained.
func (c *connection) dial(ctx context.Context, opts ...copilot.Option) (*copilot.Client, error) {
	if err := c.choose(); err != nil {
		return nil, err
	}
	if err := checkTarget(c.server.Target); err != nil {
		return nil, err
	}
	opts = append([]copilot.Option{
		c.server.options(c.program), copilot.WithLogger(c.notices.logger()),
		copilot.WithReconnect(copilot.ReconnectPolicy{
			MinBackoff: minBackoff, MaxBackoff: maxBackoff, GiveUpAfter: c.program.patience,
		}),
		copilot.WithGRPC(grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
			grpc.WithUserAgent("copilot-grpc-cli"), grpc.WithChainStreamInterceptor(c.notices.intercept)),
	}, opts...)
	if c.token != "" && (c.name == "" || c.set.given["token"]) {
		opts = append(opts, copilot.WithToken(c.token))
	}
	client, err := copilot.Dial(ctx, c.server.Target, opts...)
	if err != nil {
		return nil, c.failed(ctx, nil, err)
	}
	return client, nil
}

// choose chooses the server. The command line wins over the environment, and both over the context in use.
func (c *connection) choose() error {
	byTarget, byContext := c.set.given["target"], c.set.given["context"]
	if !byTarget && !byContext {
		byTarget, byContext = c.target != "", c.context != ""
	}
	switch {
	case byTarget && byContext:
		return usageError{fmt.Errorf("both a target, %q, and a context, %q: choose one (%s and %s can set them, too)",
			c.target, c.context, variable("target"), variable("context"))}
	case byTarget:
		c.server = endpoint{Target: c.target}
		return nil
	case byContext && c.context == "":
		return c.local()
	}
	known, err := c.program.readContexts()
	switch {
	case !byContext && (errors.Is(err, errNoConfigDir) || err == nil && known.Current == ""):
		return c.local()
	case err != nil:
		return err
	}
	c.name = known.Current
	if byContext {
		c.name = c.context
	}
	c.server, err = known.find(c.name)
	return err
}

func (c *connection) local() error {
	path, err := app.DefaultSocket()
	if err != nil {
		return fmt.Errorf("there is no local socket (%w): name the server with --target", err)
	}
	c.server = endpoint{Target: "unix:" + path}
	return nil
}

// checkTarget refuses URLs, which gRPC would take for names of hosts.
func checkTarget(address string) error {
	scheme, rest, isURL := strings.Cut(address, "://")
	if address == "" {
		return usageError{errors.New("the target is empty: write host:port, unix:/path or dns:///host:port")}
	}
	if isURL && strings.EqualFold(scheme, "xds") && !xds.Built {
		return usageError{xds.ErrNotBuilt}
	}
	if !isURL || resolver.Get(strings.ToLower(scheme)) != nil {
		return nil
	}
	host, _, _ := strings.Cut(rest, "/")
	if _, _, err := net.SplitHostPort(host); err != nil {
		host += ":port"
	}
	return usageError{fmt.Errorf("the target %q is a URL: write %s, unix:/path or dns:///host:port", address, host)}
}

// failed prints the status of a failed call, and what mends it if the server was not reached, does not know the caller,
// or has no such session. client may be nil. Other errors stay as they are.
func (c *connection) failed(ctx context.Context, client *copilot.Client, err error) error {
	var incompatible *copilot.IncompatibleError
	var failure *copilot.Error
	if !errors.As(copilot.FromError(err), &failure) || errors.As(err, &incompatible) || ctx.Err() != nil {
		return err
	}
	p := c.program
	st := failure.GRPCStatus()
	p.printStatus(st, c.details)
	if remedy := c.remedy(st, failure); remedy != "" {
		fmt.Fprintln(p.stderr, remedy)
	}
	session := cmp.Or(c.session, failure.Metadata["session_id"])
	switch {
	case copilot.IsReason(err, bridgev1.ErrorReason_ERROR_REASON_RUNTIME_NOT_FOUND):
		fmt.Fprintln(p.stderr, "Find its id with: copilot-grpc runtimes list")
	case !copilot.IsReason(err, copilot.ReasonSessionNotFound) || client == nil || session == "":
	case failure.Metadata["remedy"] != "": // it is disconnected
		fmt.Fprintf(p.stderr, "Open it with: copilot-grpc sessions resume %s\n", operand(session))
	default:
		if near := nearestSession(ctx, client, session); near != "" {
			fmt.Fprintf(p.stderr, "Did you mean the session %q?\n", near)
		} else {
			fmt.Fprintln(p.stderr, "Find its id with: copilot-grpc sessions list")
		}
	}
	return reportedError{err}
}

// reportedError is an [errReported] with its cause.
type reportedError struct{ error }

func (reportedError) Is(target error) bool { return target == errReported }

func (e reportedError) Unwrap() error { return e.error }

// isNoServer reports whether a command has failed because no server answers.
func isNoServer(err error) bool {
	var failure *copilot.Error
	return errors.Is(err, copilot.ErrNoServer) || errors.Is(err, errReported) &&
		errors.As(copilot.FromError(err), &failure) && failure.Code == codes.Unavailable
}

// remedy is what mends a failed call; empty if the error says it.
func (c *connection) remedy(st *status.Status, failure *copilot.Error) string {
	where := c.server.Target
	if c.name != "" {
		where += fmt.Sprintf(" (context %q)", c.name)
	}
	switch {
	case st.Code() == codes.Unauthenticated && c.name != "":
		return fmt.Sprintf("See \"copilot-grpc context show %s\": a context has its token in a file, a variable or a "+
			"command.", c.name)
	case st.Code() == codes.Unauthenticated:
		return "Set the server's token with --token or COPILOT_GRPC_TOKEN."
	case st.Code() != codes.Unavailable || len(st.Details()) > 0: // the server's own
		return ""
	case strings.Contains(failure.Message, "handshake failed"):
		return fmt.Sprintf("The TLS handshake with %s failed. \"copilot-grpc help context add\" has the flags for its CA, "+
			"its name and your certificate.", where)
	}
	if strings.Contains(failure.Message, "error reading server preface") {
		return fmt.Sprintf("The program that listens at %s does not speak gRPC without TLS. If it is a server with TLS, "+
			"name it with \"copilot-grpc context add\" and --tls-ca.", where)
	}
	if !strings.ContainsAny(c.server.Target, ":/") {
		where += ", port 443 (a target is HOST:PORT or unix:PATH)"
	}
	return fmt.Sprintf("No server answers at %s. Start one with \"copilot-grpc serve\", or name another with --target, "+
		"--context, COPILOT_GRPC_TARGET or COPILOT_GRPC_CONTEXT.", where)
}

// maxNear bounds the sessions that a mistyped id is compared with.
const maxNear = 1000

// nearestSession is the session whose id is most like one that does not exist; empty for none.
func nearestSession(ctx context.Context, client *copilot.Client, id string) string {
	var ids []string
	for s, err := range client.ListSessions(ctx, copilot.ListOptions{IncludeHistory: true}) {
		if err != nil || len(ids) == maxNear {
			break
		}
		if s.ID != id {
			ids = append(ids, s.ID)
		}
	}
	return setting.Nearest(id, ids)
}
