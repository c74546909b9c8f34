package cli

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// target is which server a command calls.
type target struct{ address, token string }

// flags adds the flags of a target.
func (t *target) flags(f *flags) {
	path, err := app.DefaultSocket()
	if err == nil {
		t.address = "unix:" + path
	}
	f.StringVar(&t.address, "target", t.address, "`address` of the server: unix:PATH or HOST:PORT")
	f.StringVar(&t.token, "token", "", "bearer `token` for a server on a TCP port")
}

// checkTarget refuses URLs, which gRPC would take for names of hosts.
func checkTarget(address string) error {
	if scheme, rest, _ := strings.Cut(address, "://"); scheme == "http" || scheme == "https" {
		return usageError{fmt.Errorf("the target %q is a URL: write %s, unix:/path or dns:///host:port", address,
			strings.TrimSuffix(rest, "/"))}
	}
	return nil
}

// dial returns a connection, which is made when the first call needs it.
func (t *target) dial() (*grpc.ClientConn, error) {
	if err := checkTarget(t.address); err != nil {
		return nil, err
	}
	options := []grpc.DialOption{
		// Servers without TLS are on this machine: they listen nowhere else.
		grpc.WithTransportCredentials(copilot.SocketCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithUserAgent("copilot-grpc-call"),
	}
	if t.token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(t.token)))
	}
	return grpc.NewClient(t.address, options...)
}

// bearer is a token that is sent with each call.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return false }

// failed prints the status of a failed call, and what mends it if the server was not reached or does not know the caller.
func (p *program) failed(err error, t *target) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	p.printStatus(st)
	switch {
	case st.Code() == codes.Unauthenticated:
		fmt.Fprintln(p.stderr, "Set the server's token with --token or COPILOT_GRPC_TOKEN.")
	case st.Code() == codes.Unavailable && len(st.Details()) == 0: // gRPC's own
		fmt.Fprintf(p.stderr, "No server answers at %s. Start one with \"copilot-grpc serve\", or name another with "+
			"--target or COPILOT_GRPC_TARGET.\n", t.address)
	}
	return errReported
}
