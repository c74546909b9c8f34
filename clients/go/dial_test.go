package copilot_test

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestDialUnixSocketWithToken(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	bridgev1.RegisterRuntimeServiceServer(server, &fake{info: func(ctx context.Context) error {
		if md := metadata.ValueFromIncomingContext(ctx, "authorization"); len(md) != 1 || md[0] != "Bearer sesame" {
			return failure(codes.Unauthenticated, "UNAUTHENTICATED", "who are you?")
		}
		return nil
	}})
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-serving; err != nil {
			t.Error(err)
		}
	}()

	for _, target := range []string{socket, "unix://" + socket} {
		c, err := copilot.Dial(testContext(t), target, copilot.WithToken("sesame"))
		if err != nil {
			t.Errorf("dial %q: %v", target, err)
			continue
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err = copilot.Dial(testContext(t), socket, copilot.WithToken("wrong"))
	if !copilot.IsReason(err, bridgev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED) {
		t.Errorf("err = %v", err)
	}
}

func TestLocalTargets(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]bool{
		"unix:///run/x.sock":            true,
		"unix-abstract:x":               true,
		"127.0.0.1:4000":                true,
		"127.9.9.9:4000":                true,
		"[::1]:4000":                    true,
		"localhost:4000":                true,
		"dns:///localhost:4000":         true,
		"passthrough:///127.0.0.1:4000": true,
		"localhost.example.com:4000":    false,
		"10.0.0.1:4000":                 false,
		"example.com:443":               false,
		"dns:///example.com:443":        false,
		"0.0.0.0:4000":                  false,
	} {
		if got := copilot.IsLocal(target); got != want {
			t.Errorf("IsLocal(%q) = %v", target, got)
		}
	}
}

// TestServiceConfigRepeatsOnlyReads checks each method's name, and that none of them
// changes anything.
func TestServiceConfigRepeatsOnlyReads(t *testing.T) {
	t.Parallel()
	var config struct {
		MethodConfig []struct {
			Name []struct{ Service, Method string }
		}
	}
	if err := json.Unmarshal([]byte(copilot.ServiceConfig), &config); err != nil {
		t.Fatal(err)
	}
	names := config.MethodConfig[0].Name
	if len(names) == 0 {
		t.Fatal("no methods")
	}
	reads := map[string]bool{"Get": true, "Lis": true, "Pin": true}
	for _, name := range names {
		full := protoreflect.FullName(name.Service + "." + name.Method)
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(full)
		if err != nil {
			t.Error(err)
			continue
		}
		if m, ok := d.(protoreflect.MethodDescriptor); !ok || m.IsStreamingServer() || !reads[name.Method[:3]] {
			t.Errorf("%s is not a unary read", full)
		}
	}
}

// A target of xDS says what a program without it lacks.
func TestDialXDSTakesAnImport(t *testing.T) {
	t.Parallel()
	c, err := copilot.Dial(t.Context(), "xds:///copilot", copilot.WithoutCheck())
	if err == nil {
		_ = c.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "imports github.com/copilot-grpc/copilot-grpc/clients/go/copilotxds") {
		t.Errorf("Dial = %v", err)
	}
}
