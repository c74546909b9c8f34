package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"google.golang.org/grpc"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// toolResult is what the benchmark's tool answers.
const toolResult = "It is sunny in Paris."

// attached speaks with a session through the bridge, over one Attach stream. It decodes
// every event, as callers do.
type attached struct {
	client  *copilot.Client
	session string
	stream  grpc.BidiStreamingClient[bridgev1.AttachRequest, bridgev1.AttachResponse]
	cancel  context.CancelFunc

	sending sync.Mutex
	command int
	ids     bool        // commands have request ids, as those of the libraries
	taken   chan error  // the replies to send; capacity 1
	over    chan string // as direct.over
	info    string
	read    sync.WaitGroup
	failed  chan error // why reading ended; capacity 1
}

// newAttached creates a session with a participant who handles permissions and, if
// tool is set, has the tool of that name.
func newAttached(
	ctx context.Context, b *bridge, tcp bool, config *cliv1.SessionConfig, tool string,
) (*attached, error) {
	client, err := b.dial(ctx, tcp)
	if err != nil {
		return nil, err
	}
	a := &attached{client: client, taken: make(chan error, 1), over: make(chan string, 1), failed: make(chan error, 1)}
	ctx, a.cancel = context.WithCancel(ctx)
	if a.stream, err = client.Callbacks().Attach(ctx); err != nil {
		return nil, errors.Join(err, a.close())
	}
	start := &bridgev1.AttachStart{
		Session:  &bridgev1.AttachStart_Create{Create: &bridgev1.CreateSessionRequest{Config: config}},
		Handlers: &bridgev1.Handlers{Permission: true},
	}
	if tool != "" {
		start.Tools = []*cliv1.ToolDefinition{{Name: tool, Description: "a tool"}}
	}
	if err := a.stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: start}}); err != nil {
		return nil, errors.Join(err, a.close())
	}
	first, err := a.stream.Recv()
	for err == nil && first.GetProgress() != nil {
		first, err = a.stream.Recv()
	}
	if err == nil && first.GetStarted() == nil {
		err = fmt.Errorf("the first frame is %T", first.GetFrame())
	}
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	a.session = first.GetStarted().GetSession().GetSessionId()
	a.read.Go(a.receive)
	return a, nil
}

// receive handles frames until the stream ends.
func (a *attached) receive() {
	for {
		r, err := a.stream.Recv()
		if err == nil {
			err = a.frame(r)
		}
		if err != nil {
			a.failed <- err
			return
		}
	}
}

func (a *attached) frame(r *bridgev1.AttachResponse) error {
	switch f := r.GetFrame().(type) {
	case *bridgev1.AttachResponse_Done:
		if f.Done.GetCommandId() != "" {
			a.taken <- nil
		}
	case *bridgev1.AttachResponse_Failed:
		return fmt.Errorf("attach: %s", f.Failed.GetFailure().GetMessage())
	case *bridgev1.AttachResponse_Stream:
		if c := f.Stream.GetCallbackRequested().GetCallback(); c != nil {
			return a.answer(c)
		}
		for _, e := range f.Stream.GetEvents().GetEvents() {
			switch e.GetEvent().GetEventType() {
			case "session.info":
				a.info = e.GetEvent().GetSessionInfo().GetMessage()
			case "session.idle":
				a.over <- a.info
			}
		}
	}
	return nil
}

func (a *attached) answer(c *bridgev1.Callback) error {
	answer := &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{
		Outcome: &bridgev1.ToolAnswer_Text{Text: toolResult},
	}}}
	if c.GetKind() == bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION {
		answer = &bridgev1.Answer{Answer: &bridgev1.Answer_Approve{Approve: &bridgev1.Approve{}}}
	}
	return a.write(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{
		Answer: &bridgev1.CallbackAnswer{CallbackId: c.GetCallbackId(), Answer: answer},
	}})
}

func (a *attached) write(r *bridgev1.AttachRequest) error {
	a.sending.Lock()
	defer a.sending.Unlock()
	return a.stream.Send(r)
}

func (a *attached) send(ctx context.Context, prompt string) error {
	a.command++
	command := &bridgev1.AttachCommand{
		CommandId: strconv.Itoa(a.command),
		Command:   &bridgev1.AttachCommand_Send{Send: &bridgev1.Prompt{Text: prompt}},
	}
	if a.ids {
		command.RequestId = fmt.Sprintf("0b9c7d3e-1111-4222-8333-%012d", a.command)
	}
	err := a.write(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Command{Command: command}})
	if err != nil {
		return err
	}
	select {
	case err := <-a.taken:
		return err
	case err := <-a.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sendUnary is send by a unary call.
func (a *attached) sendUnary(ctx context.Context) error {
	_, err := a.client.Sessions().Send(ctx,
		&bridgev1.SendRequest{SessionId: a.session, Prompt: &bridgev1.Prompt{Text: "hello"}})
	return err
}

func (a *attached) idle(ctx context.Context) (string, error) {
	select {
	case info := <-a.over:
		return info, nil
	case err := <-a.failed:
		return "", err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// end ends the session, and with it the stream.
func (a *attached) end(ctx context.Context) error {
	_, err := a.client.Sessions().DisconnectSession(ctx,
		&bridgev1.DisconnectSessionRequest{SessionId: a.session, Force: true})
	return errors.Join(err, a.close())
}

func (a *attached) close() error {
	a.cancel()
	a.read.Wait()
	return a.client.Close()
}
