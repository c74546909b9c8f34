package recorded

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/sim"
)

// cliEnv names the executable of the CLI.
const cliEnv = "COPILOT_CLI_PATH"

// TestModelOfTheCLI plays scenarios on the real CLI, and has the simulator's model do what the CLI did: a model that cannot is wrong.
func TestModelOfTheCLI(t *testing.T) {
	binary := os.Getenv(cliEnv)
	if binary == "" {
		t.Skipf("NOT RUN: %s is not set", cliEnv)
	}
	unpacked := t.TempDir()
	unpack := exec.Command(binary)
	unpack.Env = []string{"HOME=" + unpacked, "COPILOT_SEA_EXTRACT_ONLY=1", "COPILOT_PKG_CACHE_HOME=" + unpacked}
	if text, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	server, err := offlinemodel.Start(t.Context(), offlinemodel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			r := record(t, server, unpacked, s.plans, strings.Fields(s.replies)...)
			s.play(r)
			r.check()
		})
	}
}

// check ends the recording and compares it with the model. On a busy machine the CLI may say the last of it late.
func (r *recorder) check() {
	r.t.Helper()
	r.settle()
	for compared := -1; ; time.Sleep(late) {
		r.mu.Lock()
		lines := slices.Clone(r.lines)
		r.mu.Unlock()
		var err error
		synctest.Test(r.t, func(*testing.T) { err = sim.Accept(r.plans, lines) })
		if err == nil {
			return
		}
		if len(lines) == compared {
			r.t.Fatalf("%v\nthe recording:%s", err, r.show())
		}
		compared = len(lines)
	}
}

// late is how much later than all else something may come.
const late = 5 * time.Second

// settle waits for all replies, and for what the CLI says besides.
func (r *recorder) settle() {
	r.t.Helper()
	for n := range r.calls {
		if kind := fmt.Sprintf("reply %d", n+1); r.taken[kind] == 0 && n+1 > r.lost {
			r.await(kind)
		}
	}
	time.Sleep(200 * time.Millisecond)
}

// config is the configuration of the session.
func (r *recorder) config(more object) object {
	tool := func(name string) object {
		return object{"name": name, "description": name, "skipPermission": name == "s", "parameters": object{"type": "object"}}
	}
	c := object{
		"model": offlinemodel.DefaultModel, "streaming": true, "requestPermission": true, "requestUserInput": true, "workingDirectory": r.dir,
		"provider": object{"type": "openai", "wireApi": "completions", "baseUrl": r.model.OpenAIBaseURL(), "apiKey": "k"},
		"tools":    []object{tool("s"), tool("p")},
	}
	maps.Copy(c, more)
	return c
}

func (r *recorder) create() { r.call("session.create", r.config(nil)) }

// resume resumes the session, and reads its record.
func (r *recorder) resume(continuing bool) {
	r.call("session.resume", r.config(object{"continuePendingWork": continuing}))
	r.call("session.getMessages", object{})
}

// again ends the process, and has the next one resume the session.
func (r *recorder) again(how sim.From, continuing bool) {
	r.end(how)
	r.start()
	r.resume(continuing)
}

// send sends a prompt, and returns the id of its call.
func (r *recorder) send(n int) string {
	return r.begin("session.send", object{"prompt": fmt.Sprint("P", n)})
}

// steer sends a prompt that steers the turn.
func (r *recorder) steer(n int) {
	r.call("session.send", object{"prompt": fmt.Sprint("P", n), "mode": "immediate"})
}

// turn has the agent do a turn, and returns the id of the event of its message.
func (r *recorder) turn(n int) string {
	r.send(n)
	id := r.await("user.message").Params.Event.ID
	r.await("session.idle")
	return id
}

// held waits for a request to the model that is held.
func (r *recorder) held(n int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if err := r.model.WaitGate(ctx, fmt.Sprint(n)); err != nil {
		r.t.Fatalf("request %d of the model: %v%s", n, err, r.show())
	}
}

func (r *recorder) release(n int) { r.model.Release(fmt.Sprint(n)) }

// permission and tool wait for requests, and return their ids.
func (r *recorder) permission() string {
	return fmt.Sprint(r.await("permission.requested").Params.Event.Data["requestId"])
}

func (r *recorder) tool() string {
	return fmt.Sprint(r.await("external_tool.requested").Params.Event.Data["requestId"])
}

// permit answers a request for a permission.
func (r *recorder) permit(id, kind string) {
	r.call("session.permissions.handlePendingPermissionRequest", object{"requestId": id, "result": object{"kind": kind}})
}

// result answers the call of a caller's tool.
func (r *recorder) result(id string) {
	r.call("session.tools.handlePendingToolCall", object{"requestId": id, "result": object{"textResultForLlm": "done", "resultType": "success"}})
}

// answer answers a question.
func (r *recorder) answer(m message) {
	r.write(object{"id": m.ID, "result": object{"answer": "yes", "wasFreeform": true}})
}

// list has the CLI list what it waits for.
func (r *recorder) list() {
	r.call("session.tools.listPendingRequests", object{})
	r.call("session.permissions.pendingRequests", object{})
}

func (r *recorder) abort() { r.call("session.abort", object{}) }

// written waits until the record has a text.
func (r *recorder) written(text string) {
	r.t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		record, _ := os.ReadFile(filepath.Join(r.dir, "session-state", "s1", "events.jsonl"))
		if strings.Contains(string(record), text) {
			return
		}
		if time.Since(began) > patience {
			r.t.Fatalf("the record lacks %s:\n%s", text, record)
		}
	}
}
