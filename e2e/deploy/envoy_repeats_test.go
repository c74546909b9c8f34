package deploy

import (
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// Envoy repeats only unary methods without side effects when a server says UNAVAILABLE. It requires client certificates
// if its file says so.
func TestBehindEnvoyRepeats(t *testing.T) {
	t.Parallel()
	f := &fronted{bin: harness.Installed(t, "envoy", envoyEnv), proxied: newProxied(t, time.Minute)}
	f.Daemon = &harness.Daemon{Scripted: harness.NewScripted(t)} // no process
	harness.WriteFiles(t, f.dir, map[string]string{"replicas-ca.pem": f.certificate, "callers-ca.pem": f.certificate})
	certificate, err := tls.LoadX509KeyPair(filepath.Join(f.dir, "cert.pem"), filepath.Join(f.dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	creds := credentials.NewServerTLSFromCert(&certificate)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan string, 1000)
	server := grpc.NewServer(grpc.Creds(creds), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if !strings.HasPrefix(method, "/grpc.health.") {
			arrived <- method
		}
		return status.Error(codes.Unavailable, "not now")
	}))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	f.listen, f.web, f.address = l.Addr().String(), "127.0.0.1:1", harness.FreeAddress(t)
	harness.WriteFiles(t, f.dir, map[string]string{"envoy.yaml": f.config(map[string]string{
		"require_client_certificate: false": "require_client_certificate: true", "# validation_context": "validation_context",
	})})
	harness.StartProxy(t, f.bin, f.args()...)
	dial := func(certificates ...tls.Certificate) *grpc.ClientConn {
		conn, err := grpc.NewClient(f.address, grpc.WithDisableRetry(), grpc.WithTransportCredentials(credentials.NewTLS(
			&tls.Config{RootCAs: f.roots, ServerName: "localhost", Certificates: certificates})))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	conn := dial(certificate)
	for _, m := range unaryMethods() {
		path := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
		err := conn.Invoke(f.Ctx, path, new(emptypb.Empty), new(emptypb.Empty), grpc.WaitForReady(true))
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "not now") {
			t.Fatalf("%s: %v", path, err)
		}
		want := 1
		if m.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
			want = 3
		}
		if n := len(arrived); n != want {
			t.Errorf("the server got %s %d times, want %d", path, n, want)
		}
		for len(arrived) > 0 {
			<-arrived
		}
	}
	err = dial().Invoke(f.Ctx, healthv1.Health_Check_FullMethodName, new(emptypb.Empty), new(emptypb.Empty))
	if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "not now") {
		t.Errorf("a caller without a certificate: %v", err)
	}
}

// unaryMethods are those of copilot.bridge.v1.
func unaryMethods() (methods []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage("copilot.bridge.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			all := file.Services().Get(i).Methods()
			for j := range all.Len() {
				if m := all.Get(j); !m.IsStreamingClient() && !m.IsStreamingServer() {
					methods = append(methods, m)
				}
			}
		}
		return true
	})
	return methods
}
