// Package rawgrpc is grpc-go with the bridge's settings and nothing else: the floor of a fan-out, since it sends the
// same ready bytes to every stream, each stream from a separate goroutine; and of a round trip, since it carries bytes
// to a CLI and back as they are.
package rawgrpc

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/loadcli"
)

// The bridge's windows.
const (
	streamWindow = 1 << 20
	connWindow   = 4 << 20
)

// codec sends bytes as they are.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// blast is what all streams send.
type blast struct {
	frame, last []byte
	count       int
}

// server has the streams that wait for a blast, and the CLI of the newest relay.
type server struct {
	mu      sync.Mutex
	waiting []chan blast
	cli     *cliEnd
}

// Serve serves until ctx ends.
func Serve(ctx context.Context, listeners ...net.Listener) error {
	s := &server{}
	g := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.UnknownServiceHandler(s.handle),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow))
	var all sync.WaitGroup
	errs := make(chan error, len(listeners))
	for _, l := range listeners {
		all.Go(func() { errs <- g.Serve(l) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-errs:
	}
	g.Stop()
	all.Wait()
	return err
}

func (s *server) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	switch {
	case method == RelayMethod, method == KeepMethod:
		return s.relay(stream, string(request), method == KeepMethod)
	case method == CallMethod:
		return s.call(stream, request)
	case strings.HasSuffix(method, "/Subscribe"):
		return s.subscribe(stream)
	case strings.HasSuffix(method, "/CreateSession"):
		return reply(stream, &bridgev1.CreateSessionResponse{Session: &bridgev1.Session{SessionId: "raw"}})
	case strings.HasSuffix(method, "/Send"):
		if err := s.blast(request); err != nil {
			return err
		}
	}
	return stream.SendMsg([]byte{})
}

func reply(stream grpc.ServerStream, m proto.Message) error {
	wire, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return stream.SendMsg(wire)
}

// subscribe sends what opens a stream, and then blasts.
func (s *server) subscribe(stream grpc.ServerStream) error {
	mine := make(chan blast, 1)
	s.mu.Lock()
	s.waiting = append(s.waiting, mine)
	s.mu.Unlock()
	for range 2 {
		if err := stream.SendMsg([]byte{}); err != nil {
			return err
		}
	}
	for {
		select {
		case b := <-mine:
			for range b.count {
				if err := stream.SendMsg(b.frame); err != nil {
					return err
				}
			}
			if err := stream.SendMsg(b.last); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// blast has all streams send what the prompt says.
func (s *server) blast(request []byte) error {
	r := &bridgev1.SendRequest{}
	if err := proto.Unmarshal(request, r); err != nil {
		return err
	}
	words := strings.Fields(r.GetPrompt().GetText())
	if len(words) != 3 {
		return fmt.Errorf("no blast: %q", words)
	}
	count, err := strconv.Atoi(words[2])
	if err != nil {
		return err
	}
	p, err := loadcli.Find(words[1])
	if err != nil {
		return err
	}
	b := blast{count: count}
	// As many bytes as the event has on the wire, nearly: its data stays text.
	if b.frame, err = frame(p.Type, p.Data); err != nil {
		return err
	}
	if b.last, err = frame("session.info", loadcli.Done); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.waiting {
		select {
		case c <- b:
		default: // its stream is gone
		}
	}
	return nil
}

func frame(kind, data string) ([]byte, error) {
	e := &cliv1.SessionEvent{EventType: kind, Data: &cliv1.SessionEvent_Unrecognized{Unrecognized: data}}
	return proto.Marshal(&bridgev1.SubscribeResponse{SessionId: "raw", Frame: &bridgev1.SubscribeResponse_Events{
		Events: &bridgev1.EventBatch{Events: []*bridgev1.Event{{Event: e}}},
	}})
}
