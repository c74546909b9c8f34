package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// modelStage is a session with two participants that answer model requests, and the CLI that asks.
type modelStage struct {
	*crowded
	cli    modelCLI
	ids    map[string]string // of the participants p1 and p2; "" is no participant
	p1, p2 *roster.Participant
}

// modelCLI records the parts of responses that it gets.
type modelCLI struct {
	mu    sync.Mutex
	calls []string // method and parameters
	gone  bool     // it accepts nothing any more
	hangs bool     // it does not reply to its next call
}

func (c *modelCLI) Call(ctx context.Context, method string, params []byte, _ ...rpcconn.CallOption) (json.RawMessage, error) {
	c.mu.Lock()
	c.calls = append(c.calls, strings.TrimPrefix(method, "llmInference.http")+" "+string(params))
	gone, hangs := c.gone, c.hangs
	c.hangs = false
	c.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if gone {
		return json.RawMessage(`{"accepted":false}`), nil
	}
	return json.RawMessage(`{"accepted":true}`), nil
}

// onModelStage runs a test in virtual time. The session's own callers handle model requests too.
func onModelStage(t *testing.T, test func(t *testing.T, st *modelStage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := &modelStage{crowded: newCrowded()}
		ctx, cancel := context.WithCancel(t.Context())
		st.ctx = ctx
		handling := config.Handling{Methods: []string{callback.ModelRequestStart, callback.ModelRequestChunk}}
		st.of.settings.State.Handling = handling
		st.of.loader.timeout = time.Minute
		st.p1 = st.join(t, roster.Brings{Handling: handling, Grace: time.Hour})
		st.p2 = st.join(t, roster.Brings{Handling: handling, Grace: time.Hour})
		st.ids = map[string]string{"p1": st.p1.ID, "p2": st.p2.ID, "": ""}
		test(t, st)
		cancel()
		st.tasks.Wait()
		st.of.participants.Leave(st.p1)
		st.of.participants.Leave(st.p2)
		synctest.Wait()
	})
}

// asks has the CLI ask for a response, as the callback c1.
func (st *modelStage) asks() {
	st.tasks.Go(func() { _, _ = st.of.models.Start(st.ctx, &st.cli, "c1", json.RawMessage(`{"requestId":"r1"}`)) })
	synctest.Wait()
}

// takes has a participant answer the callback.
func (st *modelStage) takes(t *testing.T, participant string) {
	t.Helper()
	if _, err := resolve(t, st.of, "c1", callback.Responder{Participant: st.ids[participant]}, answer(`{}`)); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (st *modelStage) respond(participant string, part ModelPart) error {
	_, err := st.of.models.Respond(st.ctx, st.ids[participant], part)
	return err
}

// piece has the CLI send a piece of its request, as the callback c2.
func (st *modelStage) piece(params string) {
	st.tasks.Go(func() { _, _ = st.of.models.Chunk(st.ctx, "c2", json.RawMessage(params)) })
	synctest.Wait()
}

func modelPart(head, end bool) ModelPart {
	return ModelPart{RequestID: "r1", Head: head, End: end, Params: jsonobj.Object{{Key: "data", Value: json.RawMessage(`"x"`)}}}
}

// wantParts checks what the CLI got, by the beginnings of the calls.
func (st *modelStage) wantParts(t *testing.T, want ...string) {
	t.Helper()
	st.cli.mu.Lock()
	defer st.cli.mu.Unlock()
	if !slices.EqualFunc(st.cli.calls, want, strings.HasPrefix) {
		t.Errorf("the CLI got %q, want %q", st.cli.calls, want)
	}
}

// TestModelResponse: the participant that answered, or that responds first, owns the request; the head
// comes first, once, and nothing after the end.
func TestModelResponse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by    string // who answered the callback; "-" is no participant
		parts []ModelPart
		from  string
		want  fault.Reason // of the last part
		calls []string
	}{
		"answered":      {by: "p1", from: "p1", parts: []ModelPart{modelPart(true, false), modelPart(false, false), modelPart(false, true)}, calls: []string{"ResponseStart", "ResponseChunk", "ResponseChunk"}},
		"not answered":  {by: "-", from: "p1", parts: []ModelPart{modelPart(true, false), modelPart(false, true)}, calls: []string{"ResponseStart", "ResponseChunk"}},
		"of another":    {by: "p1", from: "p2", parts: []ModelPart{modelPart(true, false)}, want: fault.CallbackResolved},
		"of no one":     {by: "p1", from: "", parts: []ModelPart{modelPart(true, false)}, calls: []string{"ResponseStart"}},
		"without head":  {by: "p1", from: "p1", parts: []ModelPart{modelPart(false, false)}, want: fault.AnswerInvalid},
		"two heads":     {by: "p1", from: "p1", parts: []ModelPart{modelPart(true, false), modelPart(true, false)}, want: fault.AnswerInvalid, calls: []string{"ResponseStart"}},
		"after the end": {by: "p1", from: "p1", parts: []ModelPart{modelPart(true, true), modelPart(false, false)}, want: fault.CallbackNotFound, calls: []string{"ResponseStart"}},
		"a failure":     {by: "p1", from: "p1", parts: []ModelPart{{RequestID: "r1", Failure: true, End: true}}, calls: []string{"ResponseChunk"}},
		"unknown":       {by: "p1", from: "p1", parts: []ModelPart{{RequestID: "r2", Head: true}}, want: fault.CallbackNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onModelStage(t, func(t *testing.T, st *modelStage) {
				st.asks()
				if c.by != "-" {
					st.takes(t, c.by)
				}
				var err error
				for _, one := range c.parts {
					if err != nil {
						t.Fatal(err)
					}
					err = st.respond(c.from, one)
				}
				if fault.ReasonOf(err) != c.want {
					t.Errorf("the last part: %v, want %q", err, c.want)
				}
				st.wantParts(t, c.calls...)
				st.of.update(st.of.models.dropAll)
			})
		})
	}
}

// TestModelResponsesEnd: where no participant gives a response to its end, the bridge does.
func TestModelResponsesEnd(t *testing.T) {
	t.Parallel()
	whole := []string{`ResponseStart {"status":400`, `ResponseChunk {"data":"{\"error\"`}
	for name, c := range map[string]struct {
		do   func(*testing.T, *modelStage)
		want []string
	}{
		"no participant takes it": {func(_ *testing.T, st *modelStage) {
			st.of.settings.State.Handling = config.Handling{}
			st.of.participants.Leave(st.p1)
			st.of.participants.Leave(st.p2)
			synctest.Wait()
			st.asks()
		}, whole},
		"the owner leaves": {func(t *testing.T, st *modelStage) {
			st.asks()
			st.takes(t, "p1")
			st.of.participants.Leave(st.p2)
			synctest.Wait()
			st.wantParts(t)
			st.of.participants.Leave(st.p1)
		}, whole},
		"its connection breaks": {func(t *testing.T, st *modelStage) {
			st.asks()
			st.takes(t, "p1")
			st.of.participants.Lost(st.p1, errors.New("broken"))
		}, []string{`ResponseStart {"status":503`, "ResponseChunk"}},
		"in the middle": {func(_ *testing.T, st *modelStage) {
			st.asks()
			_ = st.respond("p1", modelPart(true, false))
			st.of.participants.Lost(st.p1, errors.New("broken"))
		}, []string{"ResponseStart", `ResponseChunk {"data":"","error":{"message":"the connection of the participant`}},
		"silence": {func(t *testing.T, st *modelStage) {
			st.asks()
			_ = st.respond("p1", modelPart(true, false))
			time.Sleep(59 * time.Second)
			_ = st.respond("p1", modelPart(false, false))
			time.Sleep(59 * time.Second)
			synctest.Wait()
			st.wantParts(t, "ResponseStart", "ResponseChunk")
			time.Sleep(time.Second)
		}, []string{"ResponseStart", "ResponseChunk", `ResponseChunk {"data":"","error"`}},
		"the CLI cancels": {func(t *testing.T, st *modelStage) {
			st.asks()
			st.takes(t, "p1")
			st.piece(`{"requestId":"r1","cancel":true}`)
			st.of.participants.Leave(st.p1)
		}, nil},
		"the runtime ends": {func(t *testing.T, st *modelStage) {
			st.asks()
			st.takes(t, "p1")
			st.of.loader.RuntimeLost(st.crowded, errors.New("killed"))
			time.Sleep(2 * time.Minute)
		}, nil},
		"the CLI hangs": {func(t *testing.T, st *modelStage) { // it has taken the head, and needs the end
			st.asks()
			st.takes(t, "p1")
			st.cli.hangs = true
			st.of.participants.Leave(st.p1)
			time.Sleep(acceptTimeout)
		}, whole},
		"the CLI is gone": {func(t *testing.T, st *modelStage) {
			st.asks()
			st.cli.gone = true
			wantReason(t, st.respond("p1", modelPart(true, false)), fault.CallbackResolved)
		}, []string{"ResponseStart"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onModelStage(t, func(t *testing.T, st *modelStage) {
				c.do(t, st)
				synctest.Wait()
				st.wantParts(t, c.want...)
				if st.of.models.Has("r1") {
					t.Error("the request is still open")
				}
			})
		})
	}
}

// TestPiecesOfModelRequests: pieces of a request go to its owner alone, and to none before it has one.
func TestPiecesOfModelRequests(t *testing.T) {
	t.Parallel()
	for _, owner := range []string{"p1", ""} {
		onModelStage(t, func(t *testing.T, st *modelStage) {
			st.asks()
			const piece = `{"requestId":"r1","data":"x"}`
			st.piece(piece)
			if _, err := st.of.callbacks.Registry().Get("c2"); err == nil {
				t.Error("a piece of a request without an owner is offered")
			}
			st.takes(t, owner)
			st.piece(piece)
			p, err := st.of.callbacks.Registry().Get("c2")
			if want := cmp.Or(st.ids[owner], roster.Itself); err != nil || p.For != want {
				t.Errorf("the piece is offered to %+v (%v), want %q", p, err, want)
			}
			st.of.update(st.of.models.dropAll)
		})
	}
	onModelStage(t, func(t *testing.T, st *modelStage) {
		if _, err := st.of.models.Start(st.ctx, &st.cli, "c1", json.RawMessage(`{}`)); err == nil {
			t.Error("a request without an id is taken")
		}
	})
}
