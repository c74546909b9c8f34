package server_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	grpcstatus "google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

const token = "0123456789abcdef"

func TestGateOnTCP(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t, server.Config{Listen: []string{"127.0.0.1:0"}, Token: token}, info{})
	bearer := "Bearer " + token
	for name, tc := range map[string]struct {
		authority string
		md        []string
		code      codes.Code
		reason    string
	}{
		"token":             {"", []string{"authorization", bearer}, codes.OK, ""},
		"lower case scheme": {"", []string{"authorization", "bearer " + token}, codes.OK, ""},
		"localhost":         {"localhost:1", []string{"authorization", bearer}, codes.OK, ""},
		"no port":           {"localhost", []string{"authorization", bearer}, codes.OK, ""},
		"IPv6":              {"[::1]:1", []string{"authorization", bearer}, codes.OK, ""},
		"IPv6, no port":     {"[::1]", []string{"authorization", bearer}, codes.OK, ""},
		"no token":          {"", nil, codes.Unauthenticated, "UNAUTHENTICATED"},
		"wrong token":       {"", []string{"authorization", bearer + "0"}, codes.Unauthenticated, "UNAUTHENTICATED"},
		"wrong scheme": {"", []string{"authorization", "Basic " + token}, codes.Unauthenticated,
			"UNAUTHENTICATED"},
		"foreign name": {"evil.example:1", []string{"authorization", bearer}, codes.PermissionDenied,
			"FORBIDDEN"},
		"foreign, localhost": {"localhost.evil.example", []string{"authorization", bearer}, codes.PermissionDenied,
			"FORBIDDEN"},
		"web page": {"", []string{"authorization", bearer, "origin", "http://localhost:1"}, codes.PermissionDenied,
			"FORBIDDEN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var options []grpc.DialOption
			if tc.authority != "" {
				options = append(options, grpc.WithAuthority(tc.authority))
			}
			conn := r.Dial(t, 0, options...)
			ctx := metadata.AppendToOutgoingContext(t.Context(), tc.md...)
			_, err := bridgev1.NewRuntimeServiceClient(conn).GetServerInfo(ctx, new(bridgev1.GetServerInfoRequest))
			if st := grpcstatus.Convert(err); st.Code() != tc.code || status.Reason(st) != tc.reason {
				t.Errorf("unary: %v, reason %q", st, status.Reason(st))
			}
			stream, err := healthv1.NewHealthClient(conn).Watch(ctx, new(healthv1.HealthCheckRequest))
			if err != nil {
				t.Fatal(err)
			}
			_, err = stream.Recv()
			if st := grpcstatus.Convert(err); st.Code() != tc.code || status.Reason(st) != tc.reason {
				t.Errorf("stream: %v, reason %q", st, status.Reason(st))
			}
		})
	}
}

// Both versions of reflection list the services: without the token on a unix socket,
// only with it over TCP.
func TestReflection(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t,
		server.Config{Listen: []string{"unix:" + servertest.SocketPath(t), "127.0.0.1:0"}, Token: token}, info{})
	// The versions differ in nothing but their names.
	list := func(conn *grpc.ClientConn, version string) (int, error) {
		desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
		stream, err := conn.NewStream(t.Context(), desc,
			"/grpc.reflection."+version+".ServerReflection/ServerReflectionInfo")
		if err != nil {
			return 0, err
		}
		_ = stream.SendMsg(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
		_ = stream.CloseSend()
		var resp reflectionv1.ServerReflectionResponse
		err = stream.RecvMsg(&resp)
		return len(resp.GetListServicesResponse().GetService()), err
	}
	for _, version := range []string{"v1", "v1alpha"} {
		// RuntimeService, health, and reflection twice.
		if n, err := list(r.Conn, version); n != 4 || err != nil {
			t.Errorf("%s on the unix socket: %d services, %v", version, n, err)
		}
		if _, err := list(r.Dial(t, 1), version); grpcstatus.Code(err) != codes.Unauthenticated {
			t.Errorf("%s over TCP: %v", version, err)
		}
	}
}
