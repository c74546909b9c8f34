package server

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/server/redact"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

// infrastructure is the prefix of the methods that tools and load balancers call.
const infrastructure = "/grpc."

// reporter ends each call with a status and a log message.
type reporter struct {
	log *slog.Logger
	// requests reports that the log message includes the request.
	requests atomic.Bool
}

// ended converts the error of a call to its status. Details that the caller must not see are logged.
func (r *reporter) ended(ctx context.Context, c *call, err error) error {
	st, told := status.Of(err)
	attrs := append(make([]slog.Attr, 0, 10),
		slog.String("method", c.method),
		slog.String("code", st.Code().String()),
		slog.Duration("duration", time.Since(c.began)))
	if id := c.sessionID(); id != "" {
		attrs = append(attrs, slog.String("session_id", id))
	}
	status.SetTrailer(ctx, st)
	if reason := status.Reason(st); reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	if c.caller.Role != caller.Nobody {
		attrs = append(attrs, slog.String("caller", c.caller.Name))
		if c.caller.Tenant != caller.HostTenant {
			attrs = append(attrs, slog.String("tenant", c.caller.Tenant))
		}
	}
	if p, ok := peer.FromContext(ctx); ok {
		attrs = append(attrs, slog.String("network", p.Addr.Network()))
	}
	if !told || st.Code() == codes.Internal {
		attrs = append(attrs, slog.String("error", redact.Text(err.Error())))
	}
	if m := c.message(); m != nil && r.requests.Load() {
		attrs = append(attrs, slog.String("request", redact.Message(m)))
	}
	r.log.LogAttrs(ctx, level(c.method, st), "call ended", attrs...)
	return st.Err()
}

// level is the log level of a call's end: how important it is for operators.
func level(method string, st *grpcstatus.Status) slog.Level {
	switch {
	case st.Code() == codes.Internal || st.Code() == codes.Unknown || st.Code() == codes.DataLoss:
		return slog.LevelError
	case strings.HasPrefix(method, infrastructure):
		return slog.LevelDebug
	case st.Code() == codes.Unauthenticated || st.Code() == codes.PermissionDenied:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// rescue converts a panic to an error without details; the details are logged.
func (r *reporter) rescue(ctx context.Context, c *call, p any) error {
	r.log.LogAttrs(ctx, slog.LevelError, "handler panicked",
		slog.String("method", c.method),
		slog.String("panic", redact.Text(fmt.Sprint(p))),
		slog.String("stack", string(debug.Stack())))
	return fault.New(fault.Internal, "internal error")
}

// trail sends the position of the reply if the bridge recorded one.
var trail = layer{
	enter: func(ctx context.Context, _ *call) (context.Context, error) {
		ctx, _ = position.WithRecorder(ctx)
		return ctx, nil
	},
	leave: func(ctx context.Context, _ *call, err error) error {
		rpc.SendPosition(ctx)
		return err
	},
}
