package bridgetest

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Participant is a participant that gives commands. It leaves when the test ends.
type Participant struct {
	// Frames are the frames that no method has read yet, events aside.
	Frames chan *bridgev1.AttachResponse

	t    *testing.T
	give func(*bridgev1.AttachRequest) error
}

// Attach attaches a participant that wants the CLI's own behaviour to a session.
func (b *Bridge) Attach(session string) *Participant {
	b.T.Helper()
	a, err := b.Participants.Attach(b.T.Context(), &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: session}, Exact: true,
	})
	if err != nil {
		b.T.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.T.Context())
	p, ended := &Participant{t: b.T, Frames: make(chan *bridgev1.AttachResponse, 1000)}, make(chan struct{})
	go func() {
		defer close(ended)
		_ = a.Stream(ctx, func(f frame.Frame) error {
			if m, ok := f.Message.(*bridgev1.AttachResponse); ok {
				p.Frames <- proto.CloneOf(m)
			}
			return nil
		})
		a.Lost()
	}()
	b.T.Cleanup(func() { stop(); <-ended })
	p.give = func(q *bridgev1.AttachRequest) error { return a.Handle(ctx, q) }
	return p
}

// Give gives a command.
func (p *Participant) Give(command *bridgev1.AttachCommand) {
	p.t.Helper()
	if err := p.give(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Command{Command: command}}); err != nil {
		p.t.Fatal(err)
	}
}

// Done returns the next reply to a command, which must not have failed.
func (p *Participant) Done() *bridgev1.AttachDone {
	p.t.Helper()
	for f := range p.Frames {
		if failure := f.GetFailed(); failure != nil {
			p.t.Fatalf("a command failed: %v", failure)
		}
		if d := f.GetDone(); d != nil {
			return d
		}
	}
	return nil
}
