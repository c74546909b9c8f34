package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// patience bounds how long a call is repeated, and how long everything takes to settle.
const patience = 90 * time.Second

// caller makes calls through replicas that it draws.
type caller struct {
	*world
	through []*replica
	rng     *rand.Rand
}

// try makes a call through one replica after the other until it succeeds, done returns true for its error, or patience
// ends, which is a violation unless ctx has ended.
func (c *caller) try(ctx context.Context, what string, call func(context.Context, *replica) error,
	done func(error) bool,
) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		one, end := context.WithTimeout(ctx, c.timing.Call)
		err := call(one, c.through[c.rng.IntN(len(c.through))])
		end()
		switch {
		case err == nil || done != nil && done(err):
			return err
		case status.Code(err) == codes.Internal:
			c.fail("%s failed with a fault of the server: %v", what, err)
		case ctx.Err() == context.DeadlineExceeded:
			c.fail("%s did not succeed within %v: %v", what, patience, err)
		}
		if ctx.Err() != nil {
			return err
		}
		pause(ctx, time.Duration(20+c.rng.IntN(100))*time.Millisecond)
	}
}

// create makes a session with the tool.
func (c *caller) create(ctx context.Context, id string) {
	_ = c.try(ctx, "CreateSession", func(ctx context.Context, r *replica) error {
		request := &bridgev1.CreateSessionRequest{
			SessionId: id, RequestId: "create-" + id, Config: &cliv1.SessionConfig{Tools: []*cliv1.ToolDefinition{
				{Name: toolName, Description: "Answers.", SkipPermission: proto.Bool(true)},
			}},
		}
		c.model.complete(request)
		_, err := r.sessions().CreateSession(ctx, request)
		if status.Code(err) == codes.AlreadyExists {
			return nil // an earlier try
		}
		return err
	}, nil)
}

// prompt is a prompt of a caller.
type prompt struct {
	session string
	id      string // of the request
	text    string // in no other prompt
	waits   bool   // its caller waits for its turn
}

// converse sends prompts until done is closed, and waits for some of the turns. Some prompts are repeated after they
// were acknowledged. The first one has a tool call.
func (c *caller) converse(ctx context.Context, done <-chan struct{}, session, name string) {
	for i := 0; ctx.Err() == nil; i++ {
		select {
		case <-done:
			return
		default:
		}
		p := prompt{session: session, id: fmt.Sprintf("%s-%d-", name, i), waits: c.rng.IntN(4) == 0}
		kind := []string{"text", "slow", "tool"}[c.rng.IntN(3)]
		if i == 0 {
			kind = "tool"
		}
		p.text = kind + " " + p.id
		c.prompted(p)
		for range 1 + c.rng.IntN(2) {
			c.send(ctx, p)
		}
		pause(ctx, c.between(50, int(c.timing.Prompts.Milliseconds())))
	}
}

// send sends a prompt, under the same request id each time, and waits for its turn if the prompt says so.
func (c *caller) send(ctx context.Context, p prompt) {
	_ = c.try(ctx, "Send", func(ctx context.Context, r *replica) (err error) {
		text := &bridgev1.Prompt{Text: p.text}
		if p.waits {
			_, err = r.sessions().SendAndWait(ctx,
				&bridgev1.SendAndWaitRequest{SessionId: p.session, RequestId: p.id, Prompt: text})
			return err
		}
		_, err = r.sessions().Send(ctx, &bridgev1.SendRequest{SessionId: p.session, RequestId: p.id, Prompt: text})
		return err
	}, unconfirmed)
}

// unconfirmed reports whether an error says that a prompt is lost.
func unconfirmed(err error) bool {
	return strings.Contains(fmt.Sprint(copilot.FromError(err)), "SEND_UNCONFIRMED")
}

// move moves a session to and fro until ctx ends, also in the middle of turns, and drains replicas for a moment. Either
// may be refused.
func (c *caller) move(ctx context.Context, session string) {
	for pause(ctx, c.between(300, 1500)); ctx.Err() == nil; pause(ctx, c.between(300, 1500)) {
		node, r := fmt.Sprint("r", c.rng.IntN(replicas)), c.through[c.rng.IntN(len(c.through))]
		if c.rng.IntN(5) == 0 {
			c.drain(ctx, node)
			continue
		}
		one, end := context.WithTimeout(ctx, c.timing.Call)
		_, err := r.runtimes().MoveSession(one, &bridgev1.MoveSessionRequest{
			SessionId: session, Node: node, Wait: durationpb.New(c.between(0, 500)),
		})
		end()
		if status.Code(err) == codes.Internal {
			c.fail("MoveSession failed with a fault of the server: %v", err)
		}
	}
}

// drain drains a replica, and ends that.
func (c *caller) drain(ctx context.Context, node string) {
	one, end := context.WithTimeout(ctx, c.timing.Call)
	_, _ = c.through[c.rng.IntN(len(c.through))].runtimes().DrainNode(one,
		&bridgev1.DrainNodeRequest{Node: node, Wait: durationpb.New(c.between(0, 500))}) // may be refused
	end()
	gone := func(err error) bool {
		return strings.Contains(fmt.Sprint(copilot.FromError(err)), "NODE_NOT_FOUND") // its next life does not drain
	}
	_ = c.try(context.WithoutCancel(ctx), "ending the drain of "+node, func(ctx context.Context, r *replica) error {
		_, err := r.runtimes().DrainNode(ctx, &bridgev1.DrainNodeRequest{Node: node, Undo: true})
		return err
	}, gone)
}

// between draws a number of milliseconds.
func (c *caller) between(from, to int) time.Duration {
	return time.Duration(from+c.rng.IntN(to-from)) * time.Millisecond
}

// answer answers the calls of the tool until ctx ends, each twice at once through different replicas.
func (c *caller) answer(ctx context.Context, session string) {
	for ; ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
		var pending *bridgev1.ListPendingResponse
		r := c.through[c.rng.IntN(len(c.through))]
		one, end := context.WithTimeout(ctx, c.timing.Call)
		pending, err := r.callbacks().ListPending(one, &bridgev1.ListPendingRequest{SessionId: session})
		if err == nil {
			for _, call := range pending.GetCallbacks() {
				c.answerTwice(one, call)
			}
		}
		end()
	}
}

func (c *caller) answerTwice(ctx context.Context, call *bridgev1.Callback) {
	var both sync.WaitGroup
	defer both.Wait()
	first := c.rng.IntN(len(c.through))
	for i := range 2 {
		answer, err := copilot.AnswerTool(fmt.Sprint(answerPrefix, i))
		if err != nil {
			c.fail("an answer: %v", err)
			return
		}
		both.Go(func() {
			// It fails if the other one was first, or the replica is away; the list has it again then.
			_, _ = c.through[(first+i)%len(c.through)].callbacks().Resolve(ctx, &bridgev1.ResolveRequest{
				SessionId: call.GetSessionId(), CallbackId: call.GetCallbackId(), Answer: answer,
			})
		})
	}
}

// read reads a session's durable events from the first one, through one replica after the other, until ctx ends.
func (c *caller) read(ctx context.Context, f *follower) {
	for ; ctx.Err() == nil; pause(ctx, 50*time.Millisecond) {
		one, end := context.WithTimeout(ctx, time.Duration(500+c.rng.IntN(5000))*time.Millisecond)
		stream, err := c.through[c.rng.IntN(len(c.through))].events().Subscribe(one, &bridgev1.SubscribeRequest{
			Sessions: []*bridgev1.SessionCursor{{SessionId: f.session, After: f.after,
				Start: bridgev1.StreamStart_STREAM_START_BEGINNING, Filter: durableEvents}},
		})
		for err == nil {
			var frame *bridgev1.SubscribeResponse
			if frame, err = stream.Recv(); err == nil {
				f.frame(frame)
			}
		}
		end()
	}
}

// durableEvents lets all durable events pass.
var durableEvents = &bridgev1.EventFilter{ExcludeEphemeral: true, IncludeLarge: true}

// follower is what a reader was shown. Its goroutine alone uses after.
type follower struct {
	name, session string
	after         *bridgev1.Position

	mu     sync.Mutex
	shown  []Event
	epochs int // that ended
}

func (f *follower) frame(frame *bridgev1.SubscribeResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if frame.GetGap().GetReason() == bridgev1.GapReason_GAP_REASON_EPOCH_ENDED {
		f.shown = nil
		f.epochs++
	}
	for _, e := range frame.GetEvents().GetEvents() {
		f.shown = append(f.shown, eventOf(e))
	}
	if at := frame.GetResumeAfter(); at != nil {
		f.after = at
	}
}

// reached reports whether the reader was shown the event at a position.
func (f *follower) reached(at Position) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.shown) > 0 && f.shown[len(f.shown)-1].At.compare(at) >= 0
}

func eventOf(e *bridgev1.Event) Event {
	return Event{At: Position{e.GetPosition().GetEpoch(), e.GetPosition().GetSeq()}, ID: e.GetEvent().GetId(),
		Type: e.GetEvent().GetEventType(), JSON: e.GetOriginalJson()}
}

// list reads the durable events of a session through a replica.
func list(ctx context.Context, r *replica, session string) (out []Event, err error) {
	token := ""
	for {
		page, err := r.sessions().ListEvents(ctx, &bridgev1.ListEventsRequest{
			SessionId: session, PageToken: token, OriginalJson: true, Filter: durableEvents,
		})
		if err != nil {
			return nil, err
		}
		if page.GetGap().GetReason() == bridgev1.GapReason_GAP_REASON_EPOCH_ENDED {
			out = nil // the whole of the new epoch follows
		}
		for _, e := range page.GetEvents() {
			out = append(out, eventOf(e))
		}
		if token = page.GetNextPageToken(); token == "" {
			return out, nil
		}
	}
}
