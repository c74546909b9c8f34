// Command libdriver is the driver of the Go library for command libraries.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "libdriver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, target string) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var count int
		var err error
		switch lines.Text() {
		case "stubs call":
			count, err = stubCalls(ctx, target)
		case "library call":
			count, err = libraryCalls(ctx, target)
		case "stubs event1", "stubs event16":
			count, err = stubEvents(ctx, target, lines.Text()[len("stubs event"):])
		case "library event1", "library event16":
			count, err = libraryEvents(ctx, target, lines.Text()[len("library event"):])
		default:
			err = fmt.Errorf("unknown operation %q", lines.Text())
		}
		if err != nil {
			return err
		}
		fmt.Println(count)
	}
	return lines.Err()
}

// connect makes a connection with the windows of the library: without them grpc-go measures the bandwidth, with a ping
// for every sparse message.
func connect(target string) (*grpc.ClientConn, error) {
	return grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(1<<20), grpc.WithStaticConnWindowSize(4<<20))
}

// text is the tool's arguments.
type text struct {
	Text string `json:"text"`
}

func stubCalls(ctx context.Context, target string) (count int, err error) {
	conn, err := connect(target)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	stream, err := bridgev1.NewCallbackServiceClient(conn).Attach(ctx)
	if err != nil {
		return 0, err
	}
	start := &bridgev1.AttachStart{Session: &bridgev1.AttachStart_Create{Create: &bridgev1.CreateSessionRequest{}}}
	if err := stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: start}}); err != nil {
		return 0, err
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return count, nil
		}
		if err != nil {
			return 0, err
		}
		requested := response.GetStream().GetCallbackRequested()
		if requested == nil {
			continue
		}
		callback := requested.GetCallback()
		var in text
		if err := json.Unmarshal([]byte(callback.GetToolCall().GetArgumentsJson()), &in); err != nil {
			return 0, err
		}
		answer := &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{
			Tool: &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: in.Text}},
		}}
		given := &bridgev1.AttachRequest_Answer{
			Answer: &bridgev1.CallbackAnswer{CallbackId: callback.GetCallbackId(), Answer: answer},
		}
		if err := stream.Send(&bridgev1.AttachRequest{Frame: given}); err != nil {
			return 0, err
		}
		count++
	}
}

func libraryCalls(ctx context.Context, target string) (count int, err error) {
	client, err := copilot.Dial(ctx, target)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	echo := copilot.NewTool("echo", "Repeats a text.", func(_ context.Context, in text) (string, error) {
		count++
		return in.Text, nil
	})
	session, err := client.CreateSession(ctx, copilot.SessionOptions{Tools: []copilot.Tool{echo}})
	if err != nil {
		return 0, err
	}
	<-session.Done()
	return count, nil
}

func stubEvents(ctx context.Context, target, size string) (count int, err error) {
	conn, err := connect(target)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	request := &bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: size}}}
	stream, err := bridgev1.NewEventServiceClient(conn).Subscribe(ctx, request)
	if err != nil {
		return 0, err
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return count, nil
		}
		if err != nil {
			return 0, err
		}
		for _, event := range response.GetEvents().GetEvents() {
			if event.GetEvent().GetAssistantMessage().GetContent() != "" {
				count++
			}
		}
	}
}

func libraryEvents(ctx context.Context, target, size string) (count int, err error) {
	client, err := copilot.Dial(ctx, target)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for event, err := range client.Session(size).Events(ctx) {
		if err != nil {
			return 0, err
		}
		if event.GetEvent().GetAssistantMessage().GetContent() != "" {
			count++
		}
	}
	return count, nil
}
