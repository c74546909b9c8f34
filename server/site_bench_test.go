package server_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// protocols are clients of one server by each protocol.
type protocols struct {
	grpc    *grpc.ClientConn
	connect map[string]*connect.Client
	http    *http.Client
	url     string
}

// newProtocols starts a server whose subscriptions send an event until they are cancelled.
func newProtocols(b *testing.B, event *bridgev1.SubscribeResponse) *protocols {
	b.Helper()
	wire, err := proto.Marshal(event)
	if err != nil {
		b.Fatal(err)
	}
	e := &events{subscribe: func(ctx context.Context, emit frame.Sink) error {
		for ctx.Err() == nil {
			if err := emit(frame.Frame{Wire: [][]byte{wire}}); err != nil {
				return err
			}
		}
		return ctx.Err()
	}}
	r := servertest.Start(b, server.Config{Listen: []string{"127.0.0.1:0"}, Token: webToken,
		Web: &server.Web{Listen: "127.0.0.1:0"}}, info{}, e)
	p := &protocols{url: "http://" + r.Server.WebAddr().String(), connect: map[string]*connect.Client{}}
	p.grpc, err = grpc.NewClient("passthrough:///"+r.Server.Addrs()[0].String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.grpc.Close() })
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	b.Cleanup(tr.CloseIdleConnections)
	p.http = &http.Client{Transport: tr}
	for name, option := range map[string][]connecthttp.Option{
		"connect": nil, "connect JSON": {connecthttp.WithProtoJSON()}, "gRPC-Web": {connecthttp.WithGRPCWeb()},
	} {
		p.connect[name] = connect.NewClient(connecthttp.NewTransport(p.http, p.url, option...))
	}
	return p
}

func native(b *testing.B) context.Context {
	b.Helper()
	return metadata.AppendToOutgoingContext(b.Context(), "authorization", "Bearer "+webToken)
}

func overHTTP(ctx context.Context) context.Context {
	ctx, call := connect.NewClientContext(ctx)
	call.RequestHeader().Set("Authorization", "Bearer "+webToken)
	return ctx
}

// BenchmarkWebUnary compares a small call by each protocol. The times include the client.
func BenchmarkWebUnary(b *testing.B) {
	p := newProtocols(b, new(bridgev1.SubscribeResponse))
	b.Run("gRPC", func(b *testing.B) {
		client := bridgev1.NewRuntimeServiceClient(p.grpc)
		for b.Loop() {
			if _, err := client.GetServerInfo(native(b), new(bridgev1.GetServerInfoRequest)); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, name := range []string{"connect", "connect JSON", "gRPC-Web"} {
		b.Run(name, func(b *testing.B) {
			spec := connect.Spec{Procedure: webInfo}
			for b.Loop() {
				if err := p.connect[name].CallUnary(overHTTP(b.Context()), spec, new(bridgev1.GetServerInfoRequest),
					new(bridgev1.GetServerInfoResponse)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWebEvents compares an event of 1 KB by each protocol. The times include the client, which decodes it, but
// for lines.
func BenchmarkWebEvents(b *testing.B) {
	text := proto.String(strings.Repeat("x", 1000))
	p := newProtocols(b, &bridgev1.SubscribeResponse{SessionId: "s", Frame: &bridgev1.SubscribeResponse_Events{
		Events: &bridgev1.EventBatch{Events: []*bridgev1.Event{{OriginalJson: text}}}}})
	b.Run("gRPC", func(b *testing.B) {
		ctx, cancel := context.WithCancel(native(b))
		defer cancel()
		stream, err := bridgev1.NewEventServiceClient(p.grpc).Subscribe(ctx, new(bridgev1.SubscribeRequest))
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := stream.Recv(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, name := range []string{"connect", "connect JSON", "gRPC-Web"} {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(overHTTP(b.Context()))
			defer cancel()
			stream, err := p.connect[name].CallServerStream(ctx, connect.Spec{Procedure: webSubscribe,
				StreamType: connect.StreamTypeServer}, new(bridgev1.SubscribeRequest))
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := stream.Receive(new(bridgev1.SubscribeResponse)); err != nil {
					b.Fatal(err)
				}
			}
			cancel()
			_ = stream.Close()
		})
	}
	b.Run("lines", func(b *testing.B) { p.lines(b) })
}

// lines reads lines.
func (p *protocols) lines(b *testing.B) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, p.url+webSubscribe, strings.NewReader("{}"))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+webToken)
	resp, err := p.http.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReader(resp.Body)
	for b.Loop() {
		if _, err := lines.ReadSlice('\n'); err != nil && !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
	}
}
