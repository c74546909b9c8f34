package shim

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The metadata of copilot.cli.v1.
const (
	metadataFidelity  = "copilot-fidelity"
	metadataRequestID = "copilot-request-id"
	metadataProfile   = "copilot-runtime-profile-bin"
)

const (
	// maxReply bounds a reply of the bridge: the history of a long session is one.
	maxReply = 256 << 20
	// heldBack is how long a reply is held back at most for the events before it.
	heldBack = 5 * time.Second
)

// call makes a call of the program by the rpc that stands for it.
func (c *conn) call(ctx context.Context, name string, params json.RawMessage) (json.RawMessage, error) {
	m := c.server.tables.methods[name]
	if m == nil {
		return c.callRaw(ctx, name, params)
	}
	params = orEmpty(params)
	id := about(params).SessionID
	in, err := m.in.AppendWire(nil, params, translate.Exact)
	if err != nil {
		return nil, failure(name, err.Error())
	}
	requestID := ""
	if !reads(name) {
		requestID = rand.Text()
	}
	if name == methodSend {
		if result, err := c.send(ctx, id, in, requestID); !errors.Is(err, errInterrupted) {
			return result, err
		}
	}
	ctx = metadata.AppendToOutgoingContext(ctx, metadataFidelity, "exact")
	if p := c.profile(); p != nil && id == "" {
		text, err := proto.Marshal(p)
		if err != nil {
			return nil, err
		}
		ctx = metadata.AppendToOutgoingContext(ctx, metadataProfile, string(text))
	}
	if requestID != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, metadataRequestID, requestID)
	}
	reply, trailer := &wire{}, metadata.MD{}
	err = c.invokeIn(ctx, id, func() error { return c.invoke(ctx, m.rpc, &wire{in}, reply, grpc.Trailer(&trailer)) })
	if st, ok := status.FromError(err); ok && st.Code() == codes.Unimplemented && reasonOf(st) != "METHOD_REFUSED" &&
		!hasRPC(st) {
		return c.callRaw(ctx, name, params)
	}
	if err != nil {
		return nil, err
	}
	c.server.counter.typed(name)
	result, err := m.out.AppendJSON(nil, reply.bytes, translate.JSONOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the bridge's reply: %w", err)
	}
	c.hold(ctx, id, trailer)
	return result, nil
}

// orEmpty returns a call's parameters as an object. A single positional parameter, as some JSON-RPC libraries send it, is
// unwrapped. Missing parameters, and those that are no object, become {}: the CLI ignores them.
func orEmpty(params json.RawMessage) json.RawMessage {
	if bytes.HasPrefix(params, []byte("{")) {
		return params
	}
	var positional []json.RawMessage
	if json.Unmarshal(params, &positional) == nil && len(positional) <= 1 {
		params = nil
		if len(positional) == 1 {
			params = positional[0]
		}
	}
	if !bytes.HasPrefix(params, []byte("{")) {
		return json.RawMessage(`{}`)
	}
	return params
}

// hasRPC reports whether a status has the CLI's own error.
func hasRPC(st *status.Status) bool {
	for _, d := range st.Details() {
		if _, ok := d.(*bridgev1.JsonRpcError); ok {
			return true
		}
	}
	return false
}

// reads reports whether a method changes nothing, so that it may be made twice. Its reply
// need not be remembered by the bridge.
func reads(method string) bool {
	last := method[strings.LastIndexByte(method, '.')+1:]
	for _, verb := range []string{"get", "list", "read", "ping", "status", "search", "discover", "check"} {
		if strings.HasPrefix(last, verb) {
			return true
		}
	}
	return false
}

// callRaw makes a call that no rpc stands for, where the bridge lets it.
func (c *conn) callRaw(ctx context.Context, name string, params json.RawMessage) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(orEmpty(params), &members) != nil {
		return nil, unhandled(name)
	}
	id := about(params).SessionID
	delete(members, "sessionId")
	text, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	req := &bridgev1.InvokeRequest{Method: name, ParamsJson: string(text), SessionId: id}
	if id == "" {
		req.RuntimeProfile = c.profile()
	}
	ctx = metadata.AppendToOutgoingContext(ctx, metadataFidelity, "exact")
	reply, trailer := &bridgev1.InvokeResponse{}, metadata.MD{}
	err = c.invoke(ctx, bridgev1.RawService_Invoke_FullMethodName, req, reply, grpc.Trailer(&trailer))
	if st, ok := status.FromError(err); ok &&
		(reasonOf(st) == "FEATURE_DISABLED" || st.Code() == codes.PermissionDenied) {
		c.log.Warn("method has no rpc, and the bridge's RawService is disabled or denied to this caller", "method",
			name)
		return nil, unhandled(name)
	}
	if err != nil {
		return nil, err
	}
	c.server.counter.raw(name)
	c.hold(ctx, id, trailer)
	return json.RawMessage(reply.GetResultJson()), nil
}

// invoke makes a call, again and again while the way to the bridge is broken.
func (c *conn) invoke(ctx context.Context, rpc string, in, out any, opts ...grpc.CallOption) error {
	opts = append(opts, grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxReply),
		grpc.MaxCallSendMsgSize(maxReply))
	retry := newRetry(c.server.config.Grace)
	for {
		err := c.server.config.Bridge.Invoke(ctx, rpc, in, out, opts...)
		switch {
		case err != nil && c.server.end.begun.Load():
			return shuttingDown()
		case err == nil || !passes(err) || !retry.wait(ctx):
			return err
		}
	}
}

// hold keeps a reply back until the events before it have been written.
func (c *conn) hold(ctx context.Context, id string, trailer metadata.MD) {
	p := c.sessions.participant(id)
	if p == nil {
		return
	}
	if at, ok := position.Parse(strings.Join(trailer.Get(position.Trailer), "")); ok {
		p.await(ctx, at)
	}
}

func positionOf(p *bridgev1.Position) position.Position {
	return position.Position{Epoch: p.GetEpoch(), Seq: p.GetSeq()}
}

func protoOf(p position.Position) *bridgev1.Position {
	return &bridgev1.Position{Epoch: p.Epoch, Seq: p.Seq}
}

// retry spaces tries out.
type retry struct {
	until  time.Time
	pauses backoff.ExponentialBackOff
}

const (
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
)

func newRetry(grace time.Duration) *retry {
	return &retry{
		until:  time.Now().Add(grace),
		pauses: backoff.ExponentialBackOff{InitialInterval: firstPause, Multiplier: 2, MaxInterval: lastPause},
	}
}

// wait waits before the next try; false is the end of all tries.
func (r *retry) wait(ctx context.Context) bool {
	pause := r.pauses.NextBackOff()
	if time.Now().Add(pause).After(r.until) {
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// errGone is the end of a stream whose connection has ended.
var errGone = errors.New("the connection has ended")
