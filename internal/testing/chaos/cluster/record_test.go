package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc/metadata"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// skew bounds how far the clock that NATS and the CLIs read may be from that of the test's process, which does not follow
// changes of the time of day.
const skew = 100 * time.Millisecond

// observer records what happens in a schedule. Its mutex guards what follows it.
type observer struct {
	begin    time.Time
	watching sync.WaitGroup // the watch of the owners

	mu       sync.Mutex
	observed Observations
	revision uint64 // the last one of the owners' bucket that was seen
}

// since returns the time since the schedule's begin.
func (o *observer) since(t time.Time) time.Duration { return t.Sub(o.begin) }

// observations returns what has been observed.
func (o *observer) observations() Observations {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.observed
}

// record records the answer to a call through a replica, if the call is about a session.
func (o *observer) record(replica int, method string, request, reply any, header metadata.MD, from time.Time, err error) {
	c, ok := callOf(request, reply, err)
	if !ok {
		return
	}
	c.Span, c.Replica, c.Method = Span{o.since(from), o.since(time.Now())}, replica, path.Base(method)
	c.Owner = strings.Join(header.Get("copilot-owner-node"), " ")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.observed.Calls = append(o.observed.Calls, c)
}

// callOf returns a call without its times. ok is false if the call is not about a session.
func callOf(request, reply any, err error) (c Call, ok bool) {
	about, ok := request.(interface{ GetSessionId() string })
	if !ok {
		return c, false
	}
	c.Session, c.Outcome = about.GetSessionId(), outcomeOf(err)
	if err != nil {
		c.Error = err.Error()
	}
	switch r := request.(type) {
	case *bridgev1.CreateSessionRequest:
		c.ID, c.Result = r.GetRequestId(), "created"
	case *bridgev1.SendRequest:
		sent := reply.(*bridgev1.SendResponse)
		c.ID, c.Text = r.GetRequestId(), r.GetPrompt().GetText()
		c.Result, c.InMemory = sent.GetMessageId(), sent.GetInMemoryOnly()
	case *bridgev1.SendAndWaitRequest:
		out := reply.(*bridgev1.SendAndWaitResponse)
		c.ID, c.Text = r.GetRequestId(), r.GetPrompt().GetText()
		c.End = out.GetOutcome().GetStatus().String()
		c.Result = out.GetMessageId() + " " + c.End
	case *bridgev1.ResolveRequest:
		c.ID, c.Text = r.GetCallbackId(), r.GetAnswer().GetTool().GetText()
	}
	if c.Outcome != Done {
		c.Result, c.End = "", ""
	}
	return c, true
}

// outcomeOf returns the outcome of a call. Most errors leave open whether the call took effect.
func outcomeOf(err error) Outcome {
	is := func(reason copilot.ErrorReason) bool { return copilot.IsReason(err, reason) }
	switch {
	case err == nil:
		return Done
	case is(copilot.ReasonSendUnconfirmed):
		return Lost
	case is(copilot.ReasonCallbackResolved), is(copilot.ReasonCallbackNotFound):
		return Resolved
	}
	return Open
}

// ownersBucket has the owners of sessions.
const ownersBucket = "copilot-owners"

// watch records the changes of owners until ctx ends. It returns when the watch has begun.
func (o *observer) watch(ctx context.Context, js jetstream.JetStream) error {
	var bucket jetstream.KeyValue
	for deadline := time.Now().Add(patience); ; pause(ctx, 50*time.Millisecond) {
		var err error
		if bucket, err = js.KeyValue(ctx, ownersBucket); err == nil {
			break // a replica has made it
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("reading the owners of sessions: %w", err)
		}
	}
	watcher, err := bucket.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("watching the owners of sessions: %w", err)
	}
	o.watching.Go(func() {
		defer func() { _ = watcher.Stop() }() // the connection may be closed
		for {
			select {
			case e, open := <-watcher.Updates():
				if !open {
					return // if it is too early, caughtUp fails
				}
				if e != nil {
					o.change(e)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}

// change records a change of a session's owner. The bucket keeps one value of each key, so that a watch that was
// interrupted misses changes. The revisions show how many.
func (o *observer) change(e jetstream.KeyValueEntry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Revision() <= o.revision {
		return
	}
	for n := o.revision + 1; o.revision > 0 && n < e.Revision(); n++ {
		o.observed.Unseen = append(o.observed.Unseen, n)
	}
	o.revision = e.Revision()
	key, err := base64.RawURLEncoding.DecodeString(e.Key())
	if err != nil {
		return // node labels that a session needs
	}
	var holder struct{ Node string }
	_ = json.Unmarshal(e.Value(), &holder) // a key that was deleted has no owner
	o.observed.Changes = append(o.observed.Changes, OwnerChange{
		Span:    Span{o.since(e.Created()) - skew, o.since(time.Now())},
		Session: path.Base(string(key)), Term: e.Revision(), Node: holder.Node,
	})
}

// caughtUp returns when the observer has seen all changes of owners before the call.
func (o *observer) caughtUp(ctx context.Context, js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last uint64
	for ; ; pause(ctx, 50*time.Millisecond) {
		stream, err := js.Stream(ctx, "KV_"+ownersBucket)
		if err == nil {
			last = stream.CachedInfo().State.LastSeq
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("reading the last change of an owner: %w", err)
		}
	}
	for ctx.Err() == nil {
		o.mu.Lock()
		seen := o.revision
		o.mu.Unlock()
		if seen >= last {
			return nil
		}
		pause(ctx, 50*time.Millisecond)
	}
	return fmt.Errorf("the watch of the owners did not reach revision %d within %v", last, patience)
}

// accepted returns the answers that the CLIs of a replica accepted.
func (o *observer) accepted(t *testing.T, r *replica) (out []Accepted) {
	t.Helper()
	log, err := fakecli.ReadLog(r.path("oracle.jsonl"))
	if err != nil {
		t.Error(err)
	}
	for _, a := range fakecli.Answers(log) {
		var p struct{ Result string }
		if err := json.Unmarshal(a.Params, &p); err != nil {
			t.Errorf("the answer of %s: %v: %s", a.RequestID, err, a.Params)
		}
		out = append(out, Accepted{Replica: r.n, Session: path.Base(a.SessionID), Callback: a.RequestID, Text: p.Result,
			Span: Span{o.since(a.At) - skew, o.since(a.Until) + time.Millisecond + skew}})
	}
	return out
}
