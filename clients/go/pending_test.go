package copilot_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func requested(id string) *bridgev1.WatchPendingResponse {
	return &bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_Requested{
		Requested: &bridgev1.Callback{SessionId: "s1", CallbackId: id},
	}}
}

func TestWatchPendingReconnects(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	opts := copilot.PendingOptions{
		Handle: true, Labels: map[string]string{"team": "red"}, Owner: "host", Name: "inbox", Grace: 5 * time.Second,
		Kinds: []copilot.CallbackKind{copilot.CallbackPermission},
	}
	ctx, cancel := context.WithCancel(testContext(t))
	changes := make(chan copilot.PendingChange)
	ended := make(chan error, 1)
	go func() {
		for change, err := range c.WatchPending(ctx, opts) {
			if err != nil {
				ended <- err
				return
			}
			changes <- change
		}
	}()
	caughtUp := &bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_CaughtUp{}}
	w := next(t, f.inboxes)
	want := &bridgev1.WatchPendingRequest{
		Filter: &bridgev1.PendingFilter{
			Kinds:  []bridgev1.CallbackKind{bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION},
			Labels: opts.Labels, Owner: "host",
		},
		Handle: true, Name: "inbox", Grace: durationpb.New(opts.Grace),
	}
	got := proto.CloneOf(w.req)
	got.HeartbeatInterval = nil
	if !proto.Equal(got, want) {
		t.Errorf("request %v, want %v", got, want)
	}
	w.send(requested("a"), requested("b"), caughtUp)
	for _, id := range []string{"a", "b"} {
		if change := receive(t, changes, "change"); change.Ended || change.Callback.ID != id {
			t.Errorf("change %+v, want %q to wait", change, id)
		}
	}
	w.end <- failure(codes.Unavailable, "", "cut")
	w = next(t, f.inboxes)
	w.send(requested("b"), requested("c"), caughtUp)
	if change := receive(t, changes, "change"); change.Ended || change.Callback.ID != "c" {
		t.Errorf("change %+v, want c to wait", change)
	}
	if change := receive(t, changes, "change"); !change.Ended || change.Callback.ID != "a" {
		t.Errorf("change %+v, want the end of a", change)
	}
	cancel()
	if err := receive(t, ended, "end"); err == nil {
		t.Error("the sequence ended without an error")
	}
}

func TestPendingChangeIsAnswered(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	resolved := make(chan *bridgev1.ResolveRequest, 1)
	f.resolve = func(req *bridgev1.ResolveRequest) (*bridgev1.ResolveResponse, error) {
		resolved <- req
		return &bridgev1.ResolveResponse{}, nil
	}
	answered := make(chan error, 1)
	go func() {
		for change, err := range c.WatchPending(testContext(t), copilot.PendingOptions{}) {
			if err == nil {
				err = change.Answer(testContext(t), copilot.AnswerApprove())
			}
			answered <- err
			return
		}
	}()
	next(t, f.inboxes).send(requested("a"))
	if err := receive(t, answered, "answer"); err != nil {
		t.Fatal(err)
	}
	sent := receive(t, resolved, "request")
	if sent.GetSessionId() != "s1" || sent.GetCallbackId() != "a" || sent.GetAnswer().GetApprove() == nil ||
		sent.GetRequestId() == "" {
		t.Errorf("answer %v", sent)
	}
}

func TestWatchSessionsSelectsByLabels(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	filter := &bridgev1.SessionFilter{Labels: map[string]string{"team": "red"}}
	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan error, 1)
	go func() {
		for _, err := range c.WatchSessions(ctx, filter) {
			ended <- err
		}
	}()
	if w := next(t, f.watches); !proto.Equal(w.req.GetFilter(), filter) {
		t.Errorf("filter %v", w.req.GetFilter())
	}
	cancel()
	if err := receive(t, ended, "end"); !errors.Is(err, context.Canceled) {
		t.Errorf("end: %v", err)
	}
}
