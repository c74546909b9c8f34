package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	said := func(code int64, text string) error { return &rpcconn.Error{Code: code, Message: text} }
	for _, test := range []struct {
		err    error
		method string
		want   fault.Reason
	}{
		{said(-32601, "Unhandled method x"), "x", fault.MethodUnknown},
		{said(-32601, "the feature is not enabled"), "x", fault.FeatureDisabled},
		{said(-32603, "Unhandled method session.foo"), "session.foo", fault.MethodUnknown},
		{said(-32000, "shutting down"), "session.send", fault.RuntimeLost},
		{said(-32603, "Session not found: abc"), "session.send", fault.SessionNotFound},
		{said(-32603, "Failed to load session events: Session not found: a"), "session.resume", fault.SessionNotFound},
		{said(-32603, "External tool name clash: a already registered"), "session.tools.set", fault.ToolNameConflict},
		{said(-32603, "Invalid: invalid tool name: a b"), "session.create", fault.ToolNameInvalid},
		{said(-32603, "too many concurrent JSON-RPC requests"), "ping", fault.LimitExceeded},
		{said(-32603, "retained request byte budget exceeded"), "ping", fault.LimitExceeded},
		{said(-32603, "... No GitHub OAuth token or ..."), "session.send", fault.NotSignedIn},
		{said(-32603, "Not authenticated. Please authenticate first."), "models.list", fault.NotSignedIn},
		{said(-32603, "Session is already in use by another client"), "session.resume", fault.SessionInUse},
		{said(-32603, "unknown variant `x`, expected one of"), "session.mode.set", fault.InvalidField},
		{said(-32603, "missing field `mode`"), "session.mode.set", fault.InvalidField},
		{said(-32603, "invalid type: integer"), "session.create", fault.InvalidField},
		{said(-32603, "Expected string parameter 'requestId'"), "x", fault.InvalidField},
		{said(-32603, "Rejected session.create request with invalid sessionId: ../x"), "session.create", fault.InvalidField},
		{said(-32603, "something else"), "session.create", fault.SessionRefused},
		{said(-32603, "something else"), "session.model.switchTo", fault.SessionRefused},
		{said(-32603, "something else"), "session.log", fault.CLIError},
		{said(-32602, "something else"), "session.log", fault.CLIError},
		{context.DeadlineExceeded, "x", fault.Timeout},
		{fmt.Errorf("call: %w", context.Canceled), "x", fault.Cancelled},
		{rpcconn.ErrOutboundFull, "x", fault.LimitExceeded},
		{rpcconn.ErrTooManyCalls, "x", fault.LimitExceeded},
		{errors.Join(rpcconn.ErrClosed, rpcconn.ErrPeerClosed), "x", fault.RuntimeLost},
		{errors.New("what"), "x", fault.Internal},
		{fault.New(fault.SessionBusy, "busy"), "x", fault.SessionBusy},
		{fmt.Errorf("outer: %w", fault.New(fault.SessionBusy, "busy")), "x", fault.SessionBusy},
	} {
		err := Classify(test.err, test.method)
		if got := fault.ReasonOf(err); got != test.want {
			t.Errorf("%v of %s is %s, want %s", test.err, test.method, got, test.want)
		}
		var rpc *rpcconn.Error
		if !errors.As(test.err, &rpc) {
			continue
		}
		f, ok := errors.AsType[*fault.Error](err)
		if signs := test.want == fault.NotSignedIn; ok && signs {
			if !strings.HasSuffix(f.Message, rpc.Message) || !strings.Contains(f.Message, "sign in") {
				t.Errorf("%v says %q, which is not what to do", test.err, f.Message)
			}
			f.Message = rpc.Message
		}
		if !ok || f.Message != rpc.Message || f.Metadata["rpc_message"] != rpc.Message ||
			f.Metadata["rpc_code"] != fmt.Sprint(rpc.Code) || f.Metadata["method"] != test.method {
			t.Errorf("%v has lost what the CLI said: %+v", err, f)
		}
	}
	if err := Classify(nil, "x"); err != nil {
		t.Errorf("no error became %v", err)
	}
}

// A version of the CLI may refuse a member that another one has: the caller learns which.
func TestClassifyUnknownField(t *testing.T) {
	t.Parallel()
	const said = "Request hooks.discover failed with message: unknown field `hookDirectories`, expected `projectPaths`"
	f, ok := errors.AsType[*fault.Error](Classify(&rpcconn.Error{Code: -32603, Message: said}, "hooks.discover"))
	if !ok || f.Reason != fault.InvalidField || f.Field != "hookDirectories" || f.Metadata["rpc_message"] != said ||
		!strings.Contains(f.Message, `no field "hookDirectories" in hooks.discover: omit it`) {
		t.Errorf("got %+v", f)
	}
}

// TestErrorsAsTheCLIs: callers who want the CLI's errors get those that it would have returned.
func TestErrorsAsTheCLIs(t *testing.T) {
	t.Parallel()
	invalid := fault.New(fault.InvalidField, "bad").WithField("session_id")
	for _, tc := range []struct {
		err  error
		id   string
		code int64
		want string
	}{
		{invalid, "", codeInternal, "Request m failed with message: Missing sessionId in m request"},
		{invalid, "../x", codeInternal, "Request m failed with message: Rejected m request with invalid sessionId: ../x"},
		{NotFound("s1"), "s1", codeInternal, "Request m failed with message: Session not found for sessionId: s1"},
		{fault.New(fault.MethodUnknown, "no"), "s1", codeMethodNotFound, "Unhandled method m"},
		{fault.New(fault.SessionBusy, "busy"), "s1", codeInternal, "Request m failed with message: busy"},
		{&rpcconn.Error{Code: 7, Message: "its own"}, "s1", 7, "its own"},
	} {
		f, ok := errors.AsType[*fault.Error](Exactly(tc.err, "m", tc.id))
		if !ok || f.RPC == nil || f.RPC.Code != tc.code || f.RPC.Message != tc.want {
			t.Errorf("%v with id %q is %+v", tc.err, tc.id, f)
		}
	}
}
