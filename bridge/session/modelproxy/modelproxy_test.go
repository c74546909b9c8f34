package modelproxy

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

// stage is a session and a CLI around a proxy.
type stage struct {
	p     *Proxy
	asked []string // the callbacks: method and participant
	err   error    // of asking

	mu    sync.Mutex
	calls []string // the CLI's: method and parameters
	gone  bool     // the CLI accepts nothing any more
}

func newStage() *stage {
	st := &stage{}
	st.p = New(Config{
		Ask: func(_ context.Context, p *callback.Pending) (json.RawMessage, error) {
			st.asked = append(st.asked, p.Kind.Method+" "+p.For)
			return nil, st.err
		},
		Take:     func(_ context.Context, id, participant string) { st.p.Taken(id, participant) },
		Self:     ".",
		Timeout:  func() time.Duration { return time.Minute },
		Position: func() journal.Position { return journal.Position{Epoch: 7, Seq: 1} },
		Classify: func(err error, _ string) error { return err },
		Go: func(f func(context.Context)) bool {
			f(context.Background())
			return true
		},
		Logger: func() *slog.Logger { return slog.New(slog.DiscardHandler) },
	})
	return st
}

func (st *stage) Call(_ context.Context, method string, params []byte, _ ...rpcconn.CallOption) (json.RawMessage, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.calls = append(st.calls, strings.TrimPrefix(method, "llmInference.http")+" "+string(params))
	if st.gone {
		return json.RawMessage(`{"accepted":false}`), nil
	}
	return json.RawMessage(`{"accepted":true}`), nil
}

func (st *stage) start(t *testing.T) {
	t.Helper()
	if _, err := st.p.Start(t.Context(), st, "c1", json.RawMessage(`{"requestId":"r1"}`)); err != nil {
		t.Fatal(err)
	}
}

func part(head, end bool) Part {
	return Part{RequestID: "r1", Head: head, End: end, Params: jsonobj.Object{{Key: "data", Value: json.RawMessage(`"x"`)}}}
}

func (st *stage) wantCalls(t *testing.T, want ...string) {
	t.Helper()
	st.mu.Lock()
	defer st.mu.Unlock()
	if !slices.EqualFunc(st.calls, want, strings.HasPrefix) {
		t.Errorf("the CLI got %q, want %q", st.calls, want)
	}
}

// TestResponse: the participant that answered, or that responds first, owns the request; the head
// comes first, once, and nothing after the end.
func TestResponse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by    string // who answered the callback; "-" is no participant
		parts []Part
		from  string
		want  fault.Reason // of the last part
		calls []string
	}{
		"answered":      {by: "p1", from: "p1", parts: []Part{part(true, false), part(false, false), part(false, true)}, calls: []string{"ResponseStart", "ResponseChunk", "ResponseChunk"}},
		"not answered":  {by: "-", from: "p1", parts: []Part{part(true, false), part(false, true)}, calls: []string{"ResponseStart", "ResponseChunk"}},
		"of another":    {by: "p1", from: "p2", parts: []Part{part(true, false)}, want: fault.CallbackResolved},
		"of no one":     {by: "p1", from: "", parts: []Part{part(true, false)}, calls: []string{"ResponseStart"}},
		"without head":  {by: "p1", from: "p1", parts: []Part{part(false, false)}, want: fault.AnswerInvalid},
		"two heads":     {by: "p1", from: "p1", parts: []Part{part(true, false), part(true, false)}, want: fault.AnswerInvalid, calls: []string{"ResponseStart"}},
		"after the end": {by: "p1", from: "p1", parts: []Part{part(true, true), part(false, false)}, want: fault.CallbackNotFound, calls: []string{"ResponseStart"}},
		"a failure":     {by: "p1", from: "p1", parts: []Part{{RequestID: "r1", Failure: true, End: true}}, calls: []string{"ResponseChunk"}},
		"unknown":       {by: "p1", from: "p1", parts: []Part{{RequestID: "r2", Head: true}}, want: fault.CallbackNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage()
			defer st.p.Drop()
			st.start(t)
			if c.by != "-" {
				st.p.Taken("c1", c.by)
			}
			var err error
			for _, one := range c.parts {
				if err != nil {
					t.Fatal(err)
				}
				_, err = st.p.Respond(t.Context(), c.from, one)
			}
			if fault.ReasonOf(err) != c.want {
				t.Errorf("the last part: %v, want %q", err, c.want)
			}
			st.wantCalls(t, c.calls...)
		})
	}
}

// TestResponsesEnd: where no participant gives a response to its end, the proxy does.
func TestResponsesEnd(t *testing.T) {
	t.Parallel()
	whole := []string{`ResponseStart {"status":400`, `ResponseChunk {"data":"{\"error\"`}
	for name, c := range map[string]struct {
		do   func(*testing.T, *stage)
		want []string
	}{
		"no participant takes it": {func(t *testing.T, st *stage) { st.err = errors.New("nobody"); st.start(t) }, whole},
		"the owner leaves": {func(t *testing.T, st *stage) {
			st.start(t)
			st.p.Taken("c1", "p1")
			st.p.FailOf("p2", StatusRefused, "left")
			st.p.FailOf("p1", StatusRefused, "left")
		}, whole},
		"its connection breaks": {func(t *testing.T, st *stage) {
			st.start(t)
			st.p.Taken("c1", "p1")
			st.p.FailOf("p1", StatusBroken, "broke")
		}, []string{`ResponseStart {"status":503`, "ResponseChunk"}},
		"in the middle": {func(t *testing.T, st *stage) {
			st.start(t)
			_, _ = st.p.Respond(t.Context(), "p1", part(true, false))
			st.p.FailOf("p1", StatusBroken, "broke")
		}, []string{"ResponseStart", `ResponseChunk {"data":"","error":{"message":"broke"}`}},
		"silence": {func(t *testing.T, st *stage) {
			st.start(t)
			_, _ = st.p.Respond(t.Context(), "p1", part(true, false))
			time.Sleep(59 * time.Second)
			_, _ = st.p.Respond(t.Context(), "p1", part(false, false))
			time.Sleep(59 * time.Second)
			synctest.Wait()
			st.wantCalls(t, "ResponseStart", "ResponseChunk")
			time.Sleep(time.Second)
			synctest.Wait()
		}, []string{"ResponseStart", "ResponseChunk", `ResponseChunk {"data":"","error"`}},
		"the CLI cancels": {func(t *testing.T, st *stage) {
			st.start(t)
			st.p.Taken("c1", "p1")
			_, _ = st.p.Chunk(t.Context(), "c2", json.RawMessage(`{"requestId":"r1","cancel":true}`))
			st.p.FailOf("p1", StatusRefused, "left")
		}, nil},
		"the runtime ends": {func(t *testing.T, st *stage) {
			st.start(t)
			st.p.Taken("c1", "p1")
			st.p.Drop()
			time.Sleep(time.Hour)
		}, nil},
		"the CLI is gone": {func(t *testing.T, st *stage) {
			st.start(t)
			st.gone = true
			_, err := st.p.Respond(t.Context(), "p1", part(true, false))
			if fault.ReasonOf(err) != fault.CallbackResolved {
				t.Errorf("respond: %v", err)
			}
		}, []string{"ResponseStart"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := newStage()
				c.do(t, st)
				st.wantCalls(t, c.want...)
				if st.p.Has("r1") {
					t.Error("the request is still open")
				}
			})
		})
	}
}

// TestPieces: pieces of a request go to its owner alone, and to none before it has one.
func TestPieces(t *testing.T) {
	t.Parallel()
	for owner, want := range map[string]string{"p1": "p1", "": "."} {
		st := newStage()
		st.start(t)
		piece := func() {
			if _, err := st.p.Chunk(t.Context(), "c2", json.RawMessage(`{"requestId":"r1","data":"x"}`)); err != nil {
				t.Error(err)
			}
		}
		piece()
		st.p.Taken("c1", owner)
		piece()
		if got := st.asked; !slices.Equal(got, []string{callback.ModelRequestStart + " ", callback.ModelRequestChunk + " " + want}) {
			t.Errorf("asked are %q", got)
		}
		st.p.Drop()
	}
	if _, err := newStage().p.Start(t.Context(), nil, "c1", json.RawMessage(`{}`)); err == nil {
		t.Error("a request without an id is taken")
	}
}
