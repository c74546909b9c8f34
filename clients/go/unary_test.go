package copilot_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// The calls that only pass their arguments on.

func (f *fake) Abort(_ context.Context, r *bridgev1.AbortRequest) (*bridgev1.AbortResponse, error) {
	f.unary <- r
	return &bridgev1.AbortResponse{TurnWasRunning: true}, nil
}

func (f *fake) GetSession(_ context.Context, r *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
	f.unary <- r
	return &bridgev1.GetSessionResponse{Session: &bridgev1.Session{SessionId: r.GetSessionId()}}, nil
}

func (f *fake) SetModel(_ context.Context, r *bridgev1.SetModelRequest) (*bridgev1.SetModelResponse, error) {
	f.unary <- r
	return &bridgev1.SetModelResponse{ModelId: "in use"}, nil
}

func (f *fake) UpdateLabels(
	_ context.Context, r *bridgev1.UpdateLabelsRequest,
) (*bridgev1.UpdateLabelsResponse, error) {
	f.unary <- r
	return &bridgev1.UpdateLabelsResponse{Session: &bridgev1.Session{Labels: map[string]string{"team": "red"}}}, nil
}

func (f *fake) WriteLog(_ context.Context, r *bridgev1.WriteLogRequest) (*bridgev1.WriteLogResponse, error) {
	f.unary <- r
	return &bridgev1.WriteLogResponse{EventId: "e1"}, nil
}

func (f *fake) ListPending(
	_ context.Context, r *bridgev1.ListPendingRequest,
) (*bridgev1.ListPendingResponse, error) {
	switch {
	case r.GetSessionId() != "":
		f.unary <- r
		return &bridgev1.ListPendingResponse{Callbacks: []*bridgev1.Callback{{CallbackId: "cb"}}}, nil
	case r.GetPageToken() == "":
		return &bridgev1.ListPendingResponse{
			Callbacks: []*bridgev1.Callback{{CallbackId: "1"}, {CallbackId: "2"}}, NextPageToken: "more",
		}, nil
	}
	return &bridgev1.ListPendingResponse{Callbacks: []*bridgev1.Callback{{CallbackId: "3"}}}, nil
}

func (f *fake) GetLastSession(
	context.Context, *bridgev1.GetLastSessionRequest,
) (*bridgev1.GetLastSessionResponse, error) {
	return &bridgev1.GetLastSessionResponse{SessionId: "last"}, nil
}

func (f *fake) DeleteSession(
	_ context.Context, r *bridgev1.DeleteSessionRequest,
) (*bridgev1.DeleteSessionResponse, error) {
	f.unary <- r
	return &bridgev1.DeleteSessionResponse{}, nil
}

func (f *fake) DisconnectSession(
	_ context.Context, r *bridgev1.DisconnectSessionRequest,
) (*bridgev1.DisconnectSessionResponse, error) {
	f.unary <- r
	return &bridgev1.DisconnectSessionResponse{}, nil
}

func (f *fake) ListSessions(
	_ context.Context, r *bridgev1.ListSessionsRequest,
) (*bridgev1.ListSessionsResponse, error) {
	if r.GetPageToken() == "" {
		return &bridgev1.ListSessionsResponse{
			Sessions:      []*bridgev1.Session{{SessionId: "a"}, {SessionId: r.GetFilter().GetWorkingDirectory()}},
			NextPageToken: "two",
		}, nil
	}
	last := &bridgev1.ListSessionsResponse{Sessions: []*bridgev1.Session{{SessionId: "c"}}}
	if r.GetIncludeHistory() {
		last.Sessions = append(last.Sessions, &bridgev1.Session{SessionId: "h"})
	}
	return last, nil
}

func TestUnaryCalls(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	s, ctx := c.Session("s1"), testContext(t)
	for name, tc := range map[string]struct {
		call func() (any, error)
		want any
		sent proto.Message
	}{
		"abort": {func() (any, error) { return s.Abort(ctx) }, true, &bridgev1.AbortRequest{SessionId: "s1"}},
		"get": {func() (any, error) {
			got, err := s.Get(ctx)
			return got.ID, err
		}, "s1", &bridgev1.GetSessionRequest{SessionId: "s1"}},
		"set model": {
			func() (any, error) { return s.SetModel(ctx, "gpt", "high") }, "in use",
			&bridgev1.SetModelRequest{SessionId: "s1", ModelId: "gpt", ReasoningEffort: "high"},
		},
		"update labels": {func() (any, error) {
			got, err := s.UpdateLabels(ctx, map[string]string{"team": "red"}, "old", "older")
			return got["team"], err
		}, "red", &bridgev1.UpdateLabelsRequest{
			SessionId: "s1", Set: map[string]string{"team": "red"}, Remove: []string{"old", "older"},
		}},
		"log": {func() (any, error) {
			return s.Log(ctx, "hi", copilot.LogLevel(cliv1.SessionLogLevel_SESSION_LOG_LEVEL_WARNING),
				copilot.LogEphemeral(), copilot.LogURL("https://example.com"))
		}, "e1", &bridgev1.WriteLogRequest{
			SessionId: "s1", Message: "hi", Level: cliv1.SessionLogLevel_SESSION_LOG_LEVEL_WARNING,
			Ephemeral: true, Url: "https://example.com",
		}},
		"pending": {func() (any, error) {
			got, err := s.Pending(ctx)
			return len(got), err
		}, 1, &bridgev1.ListPendingRequest{SessionId: "s1"}},
		"disconnect by a handle": {
			func() (any, error) { return nil, s.Disconnect(ctx) }, nil,
			&bridgev1.DisconnectSessionRequest{SessionId: "s1"},
		},
		"delete": {
			func() (any, error) { return nil, c.DeleteSession(ctx, "s1") }, nil,
			&bridgev1.DeleteSessionRequest{SessionId: "s1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.call()
			if err != nil || got != tc.want {
				t.Errorf("got %v, %v; want %v", got, err, tc.want)
			}
			if sent := receive(t, f.unary, "request"); !proto.Equal(sent, tc.sent) {
				t.Errorf("sent %v, want %v", sent, tc.sent)
			}
		})
	}
	if err := s.SetTools(ctx); err == nil {
		t.Error("a handle has tools")
	}
}

func TestListSessionsTurnsPages(t *testing.T) {
	t.Parallel()
	_, c := newFake(t)
	for want, history := range map[string]bool{"abc": false, "abch": true} {
		var ids string
		opts := copilot.ListOptions{Filter: &bridgev1.SessionFilter{WorkingDirectory: "b"}, IncludeHistory: history}
		for s, err := range c.ListSessions(testContext(t), opts) {
			if err != nil {
				t.Fatal(err)
			}
			ids += s.ID
		}
		if ids != want {
			t.Errorf("sessions %q, want %q", ids, want)
		}
	}
}

func TestDeleteEndsTheParticipation(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	s, a := session(t, f, c, copilot.SessionOptions{})
	ctx, deleting := testContext(t), make(chan error, 1)
	go func() { deleting <- s.Delete(ctx) }()
	a.goodbye()
	if err := receive(t, deleting, "delete"); err != nil {
		t.Error(err)
	}
	<-s.Done()
	if sent, ok := receive(t, f.unary, "request").(*bridgev1.DeleteSessionRequest); !ok || sent.GetSessionId() != "s1" {
		t.Errorf("sent %v", sent)
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	ctx := testContext(t)
	ch := make(chan opened, 1)
	go func() {
		s, err := c.JoinSession(ctx, "s1", copilot.SessionOptions{Name: "me"})
		ch <- opened{s, err}
	}()
	a := f.attached(t)
	o := receive(t, ch, "session")
	if o.err != nil || o.s.ID() != "s1" || o.s.ParticipantID() != "p1" || o.s.Info().Proto.GetPosition().GetSeq() != 3 {
		t.Errorf("session = %+v", o)
	}
	if a.start.GetJoinSessionId() != "s1" || a.start.GetName() != "me" || !a.start.GetFilter().GetExcludeAll() {
		t.Errorf("start = %v", a.start)
	}
}

func TestPositionsAsText(t *testing.T) {
	t.Parallel()
	got, err := copilot.ParsePosition(" 7/42\n")
	if err != nil || copilot.ComparePositions(got, pos(7, 42)) != 0 || copilot.FormatPosition(got) != "7/42" {
		t.Errorf("position %v, %v", got, err)
	}
	for _, text := range []string{"", "7", "7/", "/7", "7/42/1", "-1/2", "7/x"} {
		if got, err := copilot.ParsePosition(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
