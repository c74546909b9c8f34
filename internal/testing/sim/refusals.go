package sim

import (
	"errors"
	"fmt"
	"strings"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// refusals are errors with which the CLI refuses a call, and what callers are told then.
var refusals = []struct {
	code   int64
	says   string
	reason fault.Reason
	field  string
	told   string // a part of the text for callers that is not the CLI's
}{
	{-32603, "External tool name clash: t", fault.ToolNameConflict, "", ""},
	{-32603, "No GitHub OAuth token", fault.NotSignedIn, "", "not signed in"},
	{-32603, "already in use by another client", fault.SessionInUse, "", ""},
	{-32603, "unknown field `x`, expected one of", fault.InvalidField, "x", "has no field"},
	{-32603, "missing field `x`", fault.InvalidField, "", ""},
	{-32603, "the CLI is in a bad mood", fault.CLIError, "", ""},
	{-32603, "Session not found: s1", fault.SessionNotFound, "session_id", ""},
	{-32601, "Unhandled method m", fault.MethodUnknown, "", ""},
	{-32601, "the method is not enabled", fault.FeatureDisabled, "", ""},
}

// refusedMethod is a method that the CLI refuses.
const refusedMethod = "session.plan.read"

// checkRefusal: a caller is told why the CLI refuses a call, in the bridge's words and exactly as the CLI says it.
func (w *world) checkRefusal() {
	w.mu.Lock()
	as := refusals[w.ids%uint64(len(refusals))]
	if w.cli == nil || !w.cli.loaded || w.s.Loader().State() != session.Loaded {
		w.mu.Unlock()
		return
	}
	c := w.cli
	c.refusal = fmt.Sprintf(`{"code":%d,"message":%q}`, as.code, as.says)
	w.mu.Unlock()
	over, err := false, error(nil)
	w.life.tasks.Go(func() {
		_, _, err = w.life.s.Loader().Invoke(w.life.ctx, refusedMethod, nil)
		over = true
	})
	synctest.Wait()
	for !over && w.step(0) {
	}
	if !over || w.cli != c {
		return
	}
	f, _ := errors.AsType[*fault.Error](err)
	if f == nil || f.Reason != as.reason || f.Field != as.field || !strings.Contains(f.Message, as.says) || !strings.Contains(f.Message, as.told) ||
		f.Metadata["rpc_code"] != fmt.Sprint(as.code) || f.Metadata["rpc_message"] != as.says || f.Metadata["method"] != refusedMethod {
		w.fail("a call that the CLI refuses with %q fails with %v", as.says, err)
		return
	}
	exact, _ := errors.AsType[*fault.Error](session.Exactly(err, refusedMethod, "s1"))
	if exact == nil || exact.RPC == nil || exact.RPC.Code != as.code || exact.RPC.Message != as.says {
		w.fail("the error %q is not exactly that of the CLI", as.says)
	}
}
