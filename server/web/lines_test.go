package web_test

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func at(seq uint64) *bridgev1.Position { return &bridgev1.Position{Epoch: 7, Seq: seq} }

// events emits two frames, one of them already encoded, and fails for a session called "bad".
func events(t *testing.T) *backend {
	t.Helper()
	return &backend{subscribe: func(_ context.Context, r *bridgev1.SubscribeRequest, emit frame.Sink) error {
		c := r.GetSessions()[0]
		if c.GetSessionId() == "none" {
			return fault.New(fault.SessionNotFound, "no such session")
		}
		first := c.GetAfter().GetSeq() + 1
		beat := &bridgev1.SubscribeResponse{SessionId: c.GetSessionId(), ResumeAfter: at(first),
			Frame: &bridgev1.SubscribeResponse_Heartbeat{Heartbeat: &bridgev1.Heartbeat{Position: at(first)}}}
		if err := emit(wireFrame(t, beat)); err != nil {
			return err
		}
		if c.GetSessionId() == "bad" {
			return fault.New(fault.RuntimeLost, "it has ended").WithField("x")
		}
		return emit(frame.Frame{Message: &bridgev1.SubscribeResponse{SessionId: c.GetSessionId(),
			ResumeAfter: at(first + 1)}})
	}}
}

const one = `{"sessions": [{"sessionId": "s"}]}`

func TestLines(t *testing.T) {
	t.Parallel()
	s := start(t, events(t), nil)
	const (
		beat = `{"sessionId":"s","heartbeat":{"position":{"epoch":"7","seq":"1"}},` +
			`"resumeAfter":{"epoch":"7","seq":"1"}}`
		last  = `{"sessionId":"s","resumeAfter":{"epoch":"7","seq":"2"}}`
		later = `{"sessionId":"s","heartbeat":{"position":{"epoch":"7","seq":"42"}},` +
			`"resumeAfter":{"epoch":"7","seq":"42"}}`
		end = `{"sessionId":"s","resumeAfter":{"epoch":"7","seq":"43"}}`
	)
	for name, tc := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		kind, want         string
	}{
		"lines": {"POST", subscribe, one, nil, 200, "application/x-ndjson", beat + "\n" + last + "\n"},
		"events": {"POST", subscribe, one, []string{"Accept: text/event-stream"}, 200, "text/event-stream",
			"id: 7/1\ndata: " + beat + "\n\nid: 7/2\ndata: " + last + "\n\nevent: end\ndata: {}\n\n"},
		"events by GET": {"GET", subscribe + "?message=" + url.QueryEscape(one), "",
			[]string{"Accept: text/event-stream", "Last-Event-ID: 7/41"}, 200, "text/event-stream",
			"id: 7/42\ndata: " + later + "\n\nid: 7/43\ndata: " + end + "\n\nevent: end\ndata: {}\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := do(t, s, tc.method, tc.path, tc.body, append(tc.headers, asJSON)...)
			if got.status != tc.status || got.header.Get("Content-Type") != tc.kind || got.body != tc.want {
				t.Errorf("status %d, %s\n got %q\nwant %q", got.status, got.header, got.body, tc.want)
			}
		})
	}
}

func TestLinesOfFailedStreams(t *testing.T) {
	t.Parallel()
	s := start(t, events(t), nil)
	none, bad := strings.Replace(one, `"s"`, `"none"`, 1), strings.Replace(one, `"s"`, `"bad"`, 1)
	for name, tc := range map[string]struct {
		body    string
		headers []string
		status  int
		want    []string
	}{
		"before the first line": {none, nil, 404, []string{`"code":"not_found"`, `"reason":"SESSION_NOT_FOUND"`}},
		"after the first line": {bad, nil, 200, []string{`{"error":{"code":"`, `"reason":"RUNTIME_LOST"`,
			`"fieldViolations"`}},
		"as an event": {bad, []string{"Accept: text/event-stream"}, 200,
			[]string{"event: error\ndata: {\"error\":"}},
		"unknown field": {`{"session": "s"}`, nil, 400, []string{`"field":"session"`}},
		"unknown id":    {one, []string{"Last-Event-ID: seven"}, 400, []string{`"field":"Last-Event-ID"`}},
		"more than id":  {one, []string{"Last-Event-ID: 1/1x"}, 400, []string{`"field":"Last-Event-ID"`}},
		"signed id":     {one, []string{"Last-Event-ID: 1/+1"}, 400, []string{`"field":"Last-Event-ID"`}},
		"spaced id":     {one, []string{"Last-Event-ID: 1/ 1"}, 400, []string{`"field":"Last-Event-ID"`}},
		"overflow id": {one, []string{"Last-Event-ID: 1/18446744073709551616"}, 400,
			[]string{`"field":"Last-Event-ID"`}},
		"timeout with more": {one, []string{"Connect-Timeout-Ms: 5s"}, 400, []string{`"field":"Connect-Timeout-Ms"`}},
		"signed timeout":    {one, []string{"Connect-Timeout-Ms: +5"}, 400, []string{`"field":"Connect-Timeout-Ms"`}},
		"long timeout": {one, []string{"Connect-Timeout-Ms: 00000000005"}, 400,
			[]string{`"field":"Connect-Timeout-Ms"`}},
		"compressed": {one, []string{"Content-Encoding: gzip"}, 501, []string{"unknown compression"}},
		"not a timeout": {one, []string{"Connect-Timeout-Ms: soon"}, 400,
			[]string{`"field":"Connect-Timeout-Ms"`}},
		"other media wanted": {one, []string{"Accept: text/html"}, 406, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := post(t, s, subscribe, tc.body, tc.headers...)
			if got.status != tc.status {
				t.Errorf("status %d, want %d: %s", got.status, tc.status, got.body)
			}
			for _, part := range tc.want {
				if !strings.Contains(got.body, part) {
					t.Errorf("%q is not in %q", part, got.body)
				}
			}
		})
	}
}

// A line arrives at once, and the call ends when the client goes.
func TestLinesAreLive(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	s := start(t, &backend{subscribe: func(ctx context.Context, _ *bridgev1.SubscribeRequest, emit frame.Sink) error {
		if err := emit(frame.Frame{Message: &bridgev1.SubscribeResponse{SessionId: "s"}}); err != nil {
			return err
		}
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+subscribe, strings.NewReader(one))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || line != `{"sessionId":"s"}`+"\n" {
		t.Errorf("%q, %v", line, err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the call was not cancelled")
	}
}

// The header of a watch is sent when the watch is registered, before any change, by every protocol.
func TestHeaderOfAWatch(t *testing.T) {
	t.Parallel()
	s := start(t, &backend{watch: func(ctx context.Context, open func() error) error {
		if err := open(); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}}, nil)
	enveloped := "\x00\x00\x00\x00\x02{}"
	for name, tc := range map[string]struct{ kind, accept, body string }{
		"lines":    {"application/json", "", "{}"},
		"events":   {"application/json", "text/event-stream", "{}"},
		"Connect":  {"application/connect+json", "", enveloped},
		"gRPC-Web": {"application/grpc-web+json", "", enveloped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost,
				s.URL+"/copilot.bridge.v1.EventService/WatchSessions", strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", tc.kind)
			if tc.accept != "" {
				req.Header.Set("Accept", tc.accept)
			}
			resp, err := s.Client().Do(req)
			if err != nil {
				t.Fatalf("no header came: %v", err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
}

// Trailers are in the last line or event, and in the header of a call that fails before it.
func TestTrailersOfLines(t *testing.T) {
	t.Parallel()
	s := start(t, &backend{subscribe: func(ctx context.Context, r *bridgev1.SubscribeRequest, emit frame.Sink) error {
		trailers := metadata.Pairs("copilot-x", "1", "copilot-x", "2", "copilot-y-bin", "\xff")
		if err := grpc.SetTrailer(ctx, trailers); err != nil {
			return err
		}
		id := r.GetSessions()[0].GetSessionId()
		if id == "none" {
			return fault.New(fault.SessionNotFound, "no such session")
		}
		if err := emit(frame.Frame{Message: &bridgev1.SubscribeResponse{SessionId: id}}); err != nil || id == "s" {
			return err
		}
		return fault.New(fault.RuntimeLost, "it has ended")
	}}, nil)
	const want = `"metadata":{"copilot-x":["1","2"],"copilot-y-bin":["/w"]}`
	none, bad := strings.Replace(one, `"s"`, `"none"`, 1), strings.Replace(one, `"s"`, `"bad"`, 1)
	events := "Accept: text/event-stream"
	for name, tc := range map[string]struct{ body, accept, suffix string }{
		"lines":         {one, "Accept: */*", `{"sessionId":"s"}` + "\n" + `{"end":{` + want + "}}\n"},
		"events":        {one, events, "event: end\ndata: {" + want + "}\n\n"},
		"failed lines":  {bad, "Accept: */*", want + "}\n"},
		"failed events": {bad, events, want + "}\n\n"},
	} {
		got := post(t, s, subscribe, tc.body, tc.accept)
		if got.status != http.StatusOK || !strings.HasSuffix(got.body, tc.suffix) {
			t.Errorf("%s: status %d: %q, want the end %q", name, got.status, got.body, tc.suffix)
		}
	}
	got := post(t, s, subscribe, none)
	trailers := got.header.Values("Trailer-Copilot-X")
	if got.status != http.StatusNotFound || !slices.Equal(trailers, []string{"1", "2"}) {
		t.Errorf("status %d, trailers %q", got.status, trailers)
	}
}

// Methods of the CLI that only read can be called by GET, and others cannot.
func TestReadsOfTheCLIByGet(t *testing.T) {
	t.Parallel()
	s := start(t, &backend{call: func(string, []byte) ([]byte, error) { return nil, nil }}, nil)
	query := "?connect=v1&encoding=json&message=" + url.QueryEscape(`{"sessionId": "s"}`)
	if got := do(t, s, http.MethodGet, history+query, ""); got.status != http.StatusOK {
		t.Errorf("a read: status %d: %s", got.status, got.body)
	}
	update := "/copilot.cli.v1.SessionPlanService/Update"
	if got := do(t, s, http.MethodGet, update+query, ""); got.status != http.StatusMethodNotAllowed {
		t.Errorf("a change: status %d: %s", got.status, got.body)
	}
}
