package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// scriptVersion is a version that every library accepts.
const scriptVersion = "0.1.0"

// script is a server without sessions: an Attach stream asks for tool calls one after another, a Subscribe stream sends
// events.
type script struct {
	bridgev1.UnimplementedCallbackServiceServer
	bridgev1.UnimplementedEventServiceServer
	bridgev1.UnimplementedRuntimeServiceServer
	bridgev1.UnimplementedSessionServiceServer

	target        string
	calls, events int
	dir           string
	server        *grpc.Server
	served        chan error
}

// serveScript serves on a unix socket.
func serveScript(calls, events int) (*script, error) {
	dir, err := os.MkdirTemp("", "copilot-grpc-bench-")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s := &script{target: "unix:" + path, calls: calls, events: events, dir: dir, server: grpc.NewServer(),
		served: make(chan error, 1)}
	bridgev1.RegisterCallbackServiceServer(s.server, s)
	bridgev1.RegisterEventServiceServer(s.server, s)
	bridgev1.RegisterRuntimeServiceServer(s.server, s)
	bridgev1.RegisterSessionServiceServer(s.server, s)
	go func() { s.served <- s.server.Serve(l) }()
	return s, nil
}

func (s *script) stop() error {
	s.server.Stop()
	if err := <-s.served; err != nil {
		return err
	}
	return os.RemoveAll(s.dir)
}

// GetServerInfo tells a version.
func (s *script) GetServerInfo(
	context.Context, *bridgev1.GetServerInfoRequest,
) (*bridgev1.GetServerInfoResponse, error) {
	return &bridgev1.GetServerInfoResponse{Version: scriptVersion}, nil
}

// Attach asks for tool calls, each after the answer to the last, and closes the session.
func (s *script) Attach(stream bridgev1.CallbackService_AttachServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	session := &bridgev1.Session{SessionId: "s1", Position: at(1)}
	opened := &bridgev1.AttachResponse_Started{
		Started: &bridgev1.AttachStarted{ParticipantId: "p1", ParticipantToken: "t", Session: session},
	}
	if err := stream.Send(&bridgev1.AttachResponse{Frame: opened}); err != nil {
		return err
	}
	subscribed := &bridgev1.SubscriptionStarted{Session: session, Position: at(1)}
	frame := &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Started{Started: subscribed}}
	if err := stream.Send(inSession(1, frame)); err != nil {
		return err
	}
	for i := range s.calls {
		if err := ask(stream, strconv.Itoa(i), i); err != nil {
			return err
		}
	}
	closed := &bridgev1.SubscriptionClosed{Reason: bridgev1.CloseReason_CLOSE_REASON_DISCONNECTED}
	frame = &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Closed{Closed: closed}}
	return stream.Send(inSession(s.calls+1, frame))
}

// ask asks for one tool call and acknowledges its answer.
func ask(stream bridgev1.CallbackService_AttachServer, id string, seq int) error {
	arguments := `{"text": "x"}`
	callback := &bridgev1.Callback{
		CallbackId: id, SessionId: "s1", Kind: bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL,
		ParticipantIds: []string{"p1"},
		Request: &bridgev1.Callback_ToolCall{ToolCall: &cliv1.ExternalToolRequestedData{
			ToolName: "echo", ToolCallId: "t" + id, ArgumentsJson: &arguments,
		}},
	}
	requested := &bridgev1.CallbackRequested{Callback: callback, Offered: true}
	frame := &bridgev1.SubscribeResponse{
		Frame: &bridgev1.SubscribeResponse_CallbackRequested{CallbackRequested: requested},
	}
	if err := stream.Send(inSession(seq+1, frame)); err != nil {
		return err
	}
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		answer := request.GetAnswer()
		if answer == nil {
			continue // a heartbeat
		}
		if got := answer.GetAnswer().GetTool().GetText(); answer.GetCallbackId() != id || got != "x" {
			return status.Errorf(codes.InvalidArgument, "call %s: the answer is %v", id, answer)
		}
		break
	}
	return stream.Send(&bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Done{Done: &bridgev1.AttachDone{
		Subject: &bridgev1.AttachDone_CallbackId{CallbackId: id}, Position: at(seq + 1),
	}}})
}

// Subscribe sends events, in frames of as many as the session's id says, and closes the session.
func (s *script) Subscribe(req *bridgev1.SubscribeRequest, stream bridgev1.EventService_SubscribeServer) error {
	id := req.GetSessions()[0].GetSessionId()
	size, err := strconv.Atoi(id)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "session %q is no number of events", id)
	}
	for first := 1; first <= s.events; first += size {
		batch := &bridgev1.EventBatch{}
		last := min(first+size-1, s.events)
		for seq := first; seq <= last; seq++ {
			batch.Events = append(batch.Events, scriptEvent(seq))
		}
		frame := &bridgev1.SubscribeResponse{SessionId: id, ResumeAfter: at(last),
			Frame: &bridgev1.SubscribeResponse_Events{Events: batch}}
		if err := stream.Send(frame); err != nil {
			return err
		}
	}
	closed := &bridgev1.SubscriptionClosed{Reason: bridgev1.CloseReason_CLOSE_REASON_DISCONNECTED}
	return stream.Send(&bridgev1.SubscribeResponse{SessionId: id, ResumeAfter: at(s.events),
		Frame: &bridgev1.SubscribeResponse_Closed{Closed: closed}})
}

func scriptEvent(seq int) *bridgev1.Event {
	message := &cliv1.AssistantMessageData{Content: fmt.Sprintf("message %d", seq), MessageId: "m"}
	return &bridgev1.Event{Position: at(seq), Event: &cliv1.SessionEvent{
		EventType: "assistant.message", Id: strconv.Itoa(seq),
		Data: &cliv1.SessionEvent_AssistantMessage{AssistantMessage: message},
	}}
}

// inSession wraps a frame of the session for an Attach stream, with its position.
func inSession(seq int, frame *bridgev1.SubscribeResponse) *bridgev1.AttachResponse {
	frame.SessionId, frame.ResumeAfter = "s1", at(seq)
	return &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Stream{Stream: frame}}
}

func at(seq int) *bridgev1.Position { return &bridgev1.Position{Epoch: 1, Seq: uint64(seq)} }
