package server

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/bounds"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

// callLimits bound the calls in progress on a connection. They are below the transport's limit: at that one, a client
// library holds back further calls, and their callers learn nothing until their deadline.
type callLimits struct{ streams, calls int64 }

// callLimitsFor returns the limits for a transport that carries so many calls. Streams leave a sixteenth to unary calls,
// which are short as a rule. All calls leave some to those that are refused.
func callLimitsFor(transport uint32) callLimits {
	n := int64(transport)
	return callLimits{streams: max(n-max(n/16, 2), 1), calls: max(n-max(n/64, 1), 1)}
}

// callCount counts the admitted calls in progress on a connection.
type callCount struct{ all, streams atomic.Int64 }

// enter counts a call. leave must follow, also after an error.
func (n *callCount) enter(streaming bool, most callLimits) error {
	all, streams := n.all.Add(1), int64(0)
	if streaming {
		streams = n.streams.Add(1)
	}
	switch {
	case streams > most.streams:
		return tooManyCalls("max_connection_streams", "streaming calls", most.streams)
	case all > most.calls:
		return tooManyCalls("max_connection_calls", "calls", most.calls)
	}
	return nil
}

// leave ends the count of a call.
func (n *callCount) leave(streaming bool) {
	n.all.Add(-1)
	if streaming {
		n.streams.Add(-1)
	}
}

// tooManyCalls has no time to retry: a client library that repeats the call would hide what the caller has to change.
func tooManyCalls(limit, what string, most int64) error {
	return fault.New(fault.LimitExceeded, "the connection has %d concurrent %s, its maximum (%s): end one, or open "+
		"another connection", most, what, limit).With(status.MetadataLimit, limit).
		With("maximum", strconv.FormatInt(most, 10))
}

// count counts a call on its connection, and refuses it if the connection has too many.
func (s *Server) count(ctx context.Context, c *call) (context.Context, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	calls := callsOf(p)
	if calls == nil {
		return ctx, nil
	}
	streaming := s.limiter.streaming[c.method]
	c.atEnd(func(err error) error {
		calls.leave(streaming)
		return err
	})
	return ctx, calls.enter(streaming, callLimitsFor(s.config.MaxConcurrentStreams))
}

// describe adds the limits of the transport and the caller to the reply of GetServerInfo.
func (s *Server) describe(_ context.Context, c *call, err error) error {
	info, ok := c.reply.(*bridgev1.GetServerInfoResponse)
	if !ok || info == nil || err != nil {
		return err
	}
	if info.Limits == nil {
		info.Limits = &bridgev1.Limits{}
	}
	l, calls := info.Limits, callLimitsFor(s.config.MaxConcurrentStreams)
	l.MaxFieldItems, l.MaxMessageElements = bounds.MaxFieldItems, bounds.MaxElements
	l.MaxConnectionStreams, l.MaxConnectionCalls = int32(calls.streams), int32(calls.calls) //nolint:gosec // of an uint32
	l.MaxHeaderBytes, l.MinPingInterval = maxHeaderBytes, durationpb.New(minClientPingTime)
	if age := time.Duration(s.connections.age.Load()); age > 0 {
		l.MaxConnectionAge = durationpb.New(age)
	}
	info.Caller = c.introduction.describe()
	return err
}
