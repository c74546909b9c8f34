package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	probeTimeout = 5 * time.Second
	// longTimeout bounds a call with a large message, and the first call, for which a command may ask for a token.
	longTimeout = 30 * time.Second
	// maxProbe is the largest request that is tried, whatever the server allows.
	maxProbe = 16 << 20
	// minHeartbeat and maxHeartbeat are the shortest interval of heartbeats, and the server's default.
	minHeartbeat, maxHeartbeat = time.Second, 30 * time.Second
)

// The needs that a proxy can break, which are the subjects of findings.
const (
	needConnection = "connection"
	needIdentity   = "identity"
	needTrailers   = "trailers"
	needBidi       = "bidirectional"
	needHalfClose  = "half-close"
	needRequest    = "request size"
	needAnswer     = "answer size"
	needHealth     = "health"
	needIdle       = "idle streams"
)

// proxyRemedies are the settings of a proxy that mend a need.
var proxyRemedies = map[string]string{
	needConnection: "the proxy must listen with HTTP/2, and offer h2 by ALPN if it ends TLS (nginx: listen 443 ssl " +
		"http2; HAProxy: bind … alpn h2; Envoy: alpn_protocols: [h2])",
	needIdentity: "the proxy must speak HTTP/2 to the server, and pass every path and the header authorization (nginx: " +
		"location / with grpc_pass; Envoy: a route with prefix: /, and http2_protocol_options in the cluster)",
	needTrailers: "the proxy must speak HTTP/2 to the server too, and pass trailers (nginx: grpc_pass, not " +
		"proxy_pass; HAProxy: server … proto h2; Envoy: http2_protocol_options in the cluster; mesh: appProtocol of the Service)",
	needBidi: "the proxy must not collect requests or answers (nginx: grpc_pass, not proxy_pass; Envoy and mesh: no " +
		"buffer filter)",
	needHalfClose: "the proxy must end each direction of a stream separately, and have no time limit of streams " +
		"(Envoy and mesh: timeout: 0s in the route)",
	needRequest: "let the proxy pass requests of this size (nginx: client_max_body_size 0; Envoy and mesh: no buffer " +
		"filter, or a larger max_request_bytes in it)",
	needAnswer: "let the proxy pass answers of this size (nginx: grpc_pass, not proxy_pass; Envoy and mesh: no " +
		"buffer filter)",
	needHealth: "route /grpc.health.v1.Health/ to the server, as a stream without a time limit (nginx: location /; " +
		"Envoy and mesh: prefix: / and timeout: 0s)",
	needIdle: "let streams be silent for longer than a heartbeat's interval (nginx: grpc_read_timeout, " +
		"grpc_send_timeout and client_body_timeout 75s; HAProxy: timeout client and timeout server 75s; Envoy: stream_idle_timeout: 75s, and timeout: 0s in the route), " +
		"or set a shorter heartbeat_interval",
}

// targetProbe tries what callers need of all that is between them and a server.
type targetProbe struct {
	*connection
	conn grpc.ClientConnInterface
	info bridgev1.GetServerInfoResponse
}

// probe tries the server of a connection. Its calls change nothing there. Streams are left idle for a time, unless it
// is 0.
func (c *connection) probe(ctx context.Context, idle time.Duration) ([]runtime.Finding, error) {
	client, err := c.dial(ctx, copilot.WithoutCheck())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	t := &targetProbe{connection: c, conn: client.Conn()}
	found, works := t.greet(ctx)
	if !works {
		return append(found, runtime.Finding{Level: runtime.LevelWarning, Subject: "other needs",
			Text: "not tried, because no call works", Remedy: "correct the line above, and run doctor again"}), nil
	}
	found = append(found, t.bidi(ctx), t.halfClose(ctx), t.request(ctx), t.answer(ctx), t.health(ctx))
	if idle > 0 {
		return append(found, t.idle(ctx, idle)), ctx.Err()
	}
	return append(found, passes(needIdle,
		"not tried: --idle 90s leaves a stream with heartbeats only for that time")), ctx.Err()
}

func passes(need, format string, args ...any) runtime.Finding {
	return runtime.Finding{Level: runtime.LevelOK, Subject: need, Text: fmt.Sprintf(format, args...)}
}

// broken is the finding of a need that err, or what is said instead of it, shows to be broken. If the server itself
// has refused the call, the need could not be tried.
func (t *targetProbe) broken(need string, err error, said string) runtime.Finding {
	st := status.Convert(err)
	f := runtime.Finding{Level: runtime.LevelError, Subject: need, Text: said, Remedy: proxyRemedies[need]}
	if err != nil {
		f.Text = said + ": " + failureText(st)
	}
	if reason := reasonOf(err); reason != "" {
		f.Level, f.Text = runtime.LevelWarning, fmt.Sprintf("not tried: the server refuses the call with %s: %s", reason,
			st.Message())
		f.Remedy = "use an identity that may read"
	}
	return f
}

// failureText is a status for people, without the page that a proxy has sent with its own error.
func failureText(st *status.Status) string {
	message, _, _ := strings.Cut(st.Message(), "; transport: received unexpected content-type")
	return st.Code().String() + ": " + message
}

// reasonOf is the reason that the server has given to an error; empty for errors of others.
func reasonOf(err error) string {
	failure, ok := errors.AsType[*copilot.Error](copilot.FromError(err))
	switch {
	case !ok:
		return ""
	case failure.Reason == bridgev1.ErrorReason_ERROR_REASON_UNSPECIFIED: // one that this program does not know
		return failure.Metadata["reason"]
	}
	return strings.TrimPrefix(failure.Reason.String(), "ERROR_REASON_")
}

// greet connects, asks the server who the caller is, and looks at the trailers of two calls: one that succeeds, and one
// that fails. It reports whether calls get an answer and a status, without which nothing else can be tried.
//
// GetServerInfo is read as a stream, to see its answer even if its trailers are missing.
func (t *targetProbe) greet(ctx context.Context) (found []runtime.Finding, works bool) {
	ctx, cancel := context.WithTimeout(ctx, longTimeout)
	defer cancel()
	stream, err := t.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true},
		bridgev1.RuntimeService_GetServerInfo_FullMethodName)
	if err != nil {
		return []runtime.Finding{t.unreached(needConnection, err)}, false
	}
	_, _ = stream.SendMsg(&bridgev1.GetServerInfoRequest{}), stream.CloseSend() // RecvMsg has the error
	err = stream.RecvMsg(&t.info)
	found = append(found, t.connected(stream.Context()))
	if err != nil {
		return append(found, t.unreached(needIdentity, err)), false
	}
	who := t.info.GetCaller()
	found = append(found, passes(needIdentity, "%s, %s of the tenant %s, known by %s", who.GetName(),
		enumText(who.GetRole(), "ROLE_"), who.GetTenant(), cmp.Or(proofTexts[who.GetProof()], "nothing")))
	if err := stream.RecvMsg(&bridgev1.GetServerInfoResponse{}); !errors.Is(err, io.EOF) {
		return append(found, t.broken(needTrailers, err, "a call that succeeds has no status")), false
	}
	_, err = bridgev1.NewSessionServiceClient(t.conn).GetSession(ctx, &bridgev1.GetSessionRequest{
		SessionId: "00000000-0000-0000-0000-000000000000"})
	if reason := reasonOf(err); reason != "" {
		return append(found, passes(needTrailers, "a call that fails has its reason, %s", reason)), true
	}
	return append(found, t.broken(needTrailers, err, "a call that must fail has no reason")), true
}

// unreached is the finding of a first call that the server did not answer.
func (t *targetProbe) unreached(need string, err error) runtime.Finding {
	f := t.broken(need, err, "no answer")
	st := status.Convert(err)
	f.Level, f.Text = runtime.LevelError, failureText(st)
	isALPN := strings.Contains(f.Text, "ALPN") || strings.Contains(f.Text, "no application protocol")
	if failure, ok := errors.AsType[*copilot.Error](copilot.FromError(err)); ok && !isALPN {
		f.Remedy = cmp.Or(t.remedy(st, failure), proxyRemedies[need])
	}
	return f
}

// connected describes the connection of a call.
func (t *targetProbe) connected(ctx context.Context) runtime.Finding {
	other, _ := peer.FromContext(ctx)
	if other == nil {
		return passes(needConnection, "to %s", t.server.Target)
	}
	secure, ok := other.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return passes(needConnection, "to %s, HTTP/2 without TLS", t.server.Target)
	}
	state := secure.State
	return passes(needConnection, "to %s, %s, with a certificate for %s, ALPN %s", t.server.Target,
		tls.VersionName(state.Version), cmp.Or(strings.Join(state.PeerCertificates[0].DNSNames, ", "), state.ServerName),
		state.NegotiatedProtocol)
}

// ask asks the reflection service, a bidirectional stream without effects, for the files of a service. It half-closes
// the stream after the answer to the last of its requests, or before if it has only one. It returns the answer's size.
func (t *targetProbe) ask(ctx context.Context, service string, requests int) (size int, err error) {
	stream, err := reflectionpb.NewServerReflectionClient(t.conn).ServerReflectionInfo(ctx)
	if err != nil {
		return 0, err
	}
	for range requests {
		_ = stream.Send(&reflectionpb.ServerReflectionRequest{ // Recv has the error
			MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service}})
		if requests == 1 {
			_ = stream.CloseSend()
		}
		answer, err := stream.Recv()
		if err != nil {
			return 0, err
		}
		size = proto.Size(answer)
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return 0, cmp.Or(err, status.Error(codes.Internal, "an answer to no request"))
	}
	return size, nil
}

func (t *targetProbe) bidi(ctx context.Context) runtime.Finding {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if _, err := t.ask(ctx, healthpb.Health_ServiceDesc.ServiceName, 2); err != nil {
		return t.broken(needBidi, err, "a stream has no answer while the caller may still send")
	}
	return passes(needBidi, "a stream answers each request before the caller half-closes")
}

// halfClose waits for a heartbeat of a stream that the caller has half-closed.
func (t *targetProbe) halfClose(ctx context.Context) runtime.Finding {
	if err := t.heartbeats(ctx, minHeartbeat, 0); err != nil {
		return t.broken(needHalfClose, err, "a stream ends after the caller has half-closed it")
	}
	return passes(needHalfClose, "a stream continues after the caller has half-closed it")
}

func (t *targetProbe) idle(ctx context.Context, idle time.Duration) runtime.Finding {
	interval, begun := min(max(idle, minHeartbeat), maxHeartbeat), time.Now()
	if err := t.heartbeats(ctx, interval, idle); err != nil {
		return t.broken(needIdle, err, fmt.Sprintf("a stream with a heartbeat every %v ends after %v", interval,
			time.Since(begun).Round(100*time.Millisecond)))
	}
	return passes(needIdle, "a stream with only a heartbeat every %v lasts %v", interval,
		time.Since(begun).Round(time.Second))
}

// heartbeats reads a stream until a heartbeat comes after a time.
func (t *targetProbe) heartbeats(ctx context.Context, interval, after time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, after+interval+probeTimeout)
	defer cancel()
	stream, err := bridgev1.NewEventServiceClient(t.conn).WatchSessions(ctx, &bridgev1.WatchSessionsRequest{
		HeartbeatInterval: durationpb.New(interval),
		Filter:            &bridgev1.SessionFilter{Labels: map[string]string{"doctor": "idle"}}}) // no changes of sessions
	if err != nil {
		return err
	}
	for begun := time.Now(); ; {
		change, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return status.Error(codes.Unavailable, "the stream has ended")
		case err != nil:
			return err
		case change.GetChange() == bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT && time.Since(begun) >= after:
			return nil
		}
	}
}

// request sends a request of almost the size that the server allows, in a field that no server knows.
func (t *targetProbe) request(ctx context.Context) runtime.Finding {
	ctx, cancel := context.WithTimeout(ctx, longTimeout)
	defer cancel()
	size := max(min(t.info.GetLimits().GetMaxRequestBytes(), maxProbe)-1<<10, 0)
	large := &bridgev1.GetServerInfoRequest{}
	large.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, protowire.MaxValidNumber,
		protowire.BytesType), make([]byte, size)))
	_, err := bridgev1.NewRuntimeServiceClient(t.conn).GetServerInfo(ctx, large)
	if err != nil {
		return t.broken(needRequest, err, fmt.Sprintf("a request of %s, which the server allows, fails", sizeText(size)))
	}
	return passes(needRequest, "a request of %s arrives", sizeText(size))
}

func (t *targetProbe) answer(ctx context.Context) runtime.Finding {
	ctx, cancel := context.WithTimeout(ctx, longTimeout)
	defer cancel()
	size, err := t.ask(ctx, bridgev1.CallbackService_ServiceDesc.ServiceName, 1)
	if err != nil {
		return t.broken(needAnswer, err, "a large answer does not arrive")
	}
	return passes(needAnswer, "an answer of %s arrives", sizeText(int64(size)))
}

func (t *targetProbe) health(ctx context.Context) runtime.Finding {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	client := healthpb.NewHealthClient(t.conn)
	checked, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return t.broken(needHealth, err, "Check fails")
	}
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		return t.broken(needHealth, err, "Watch fails")
	}
	if checked.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return runtime.Finding{Level: runtime.LevelWarning, Subject: needHealth, Text: "the server reports " +
			checked.GetStatus().String(), Remedy: "see the server's log, and run doctor there with its settings"}
	}
	return passes(needHealth, "Check and Watch report SERVING")
}
