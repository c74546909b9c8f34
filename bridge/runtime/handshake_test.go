//go:build unix

package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

func methodFault(method string, f fakecli.Fault) []fakecli.MethodFault {
	return []fakecli.MethodFault{{Method: method, Fault: f}}
}

func TestHandshake(t *testing.T) {
	t.Parallel()
	const notFound = -32601
	for name, tc := range map[string]struct {
		script fakecli.Script
		reason fault.Reason // "" when accepted
		newer  bool         // whether it is accepted with a warning
		tested bool         // whether only tested versions are allowed
	}{
		"pinned":         {script: fakecli.Script{}},
		"oldest":         {script: fakecli.Script{Version: "1.0.81"}},
		"newer":          {script: fakecli.Script{Version: "1.0.103"}, newer: true},
		"newer, refused": {script: fakecli.Script{Version: "1.0.103"}, tested: true, reason: fault.CLIUnsupported},
		"between":        {script: fakecli.Script{Version: "1.0.83-2"}},
		"older":          {script: fakecli.Script{Version: "1.0.80"}, reason: fault.CLIUnsupported},
		"no version":     {script: fakecli.Script{Version: "dev"}, reason: fault.CLIUnsupported},
		"other protocol": {script: fakecli.Script{Protocol: 4}, reason: fault.CLIUnsupported},
		"no connect": {script: fakecli.Script{
			Faults: methodFault("connect",
				fakecli.Fault{Kind: fakecli.FaultError, Code: notFound, Message: "Unhandled method connect"}),
		}},
		"no connect, no status": {
			script: fakecli.Script{Faults: []fakecli.MethodFault{
				{Method: "connect", Fault: fakecli.Fault{Kind: fakecli.FaultError, Code: notFound}},
				{Method: "status.get", Fault: fakecli.Fault{Kind: fakecli.FaultError, Code: notFound}},
			}},
			reason: fault.CLIUnsupported,
		},
		"error": {
			script: fakecli.Script{Faults: methodFault("connect",
				fakecli.Fault{Kind: fakecli.FaultError, Code: -32603, Message: "no"})},
			reason: fault.CLIStartFailed,
		},
		"odd answer": {
			script: fakecli.Script{Replies: map[string]json.RawMessage{"connect": json.RawMessage(`"hello"`)}},
			reason: fault.CLIProtocolError,
		},
		"garbage": {script: fakecli.Script{Faults: methodFault("connect", fakecli.Fault{Kind: fakecli.FaultGarbage})},
			reason: fault.CLIStartFailed},
		"closes": {script: fakecli.Script{Faults: methodFault("connect", fakecli.Fault{Kind: fakecli.FaultClose})},
			reason: fault.CLIStartFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := inProcess(t, tc.script, nil)
			cfg.TestedOnly = tc.tested
			r, err := Start(t.Context(), cfg)
			if tc.reason != 0 {
				if fault.ReasonOf(err) != tc.reason {
					t.Fatalf("Start = %v (%s), want %s", err, fault.ReasonOf(err), tc.reason)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer stop(t, r)
			i := r.Info()
			if i.Protocol != 3 || i.CLIVersion == "" || (len(i.Warnings) > 0) != tc.newer || i.StartedAt.IsZero() || i.Peer.PID != 0 {
				t.Errorf("Info = %+v", i)
			}
		})
	}
}

func TestStartIsBounded(t *testing.T) {
	t.Parallel()
	hang := fakecli.Script{Faults: methodFault("connect", fakecli.Fault{Kind: fakecli.FaultHang})}
	t.Run("by its timeout", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			_, err := Start(t.Context(), inProcess(t, hang, nil))
			if fault.ReasonOf(err) != fault.CLIStartFailed || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Start = %v", err)
			}
			if took := time.Since(begin); took != DefaultStartTimeout {
				t.Errorf("gave up after %v", took)
			}
		})
	})
	t.Run("by the caller", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			cause := errors.New("changed my mind")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			_, err := Start(ctx, inProcess(t, hang, nil))
			if !errors.Is(err, cause) {
				t.Errorf("Start = %v, want %v", err, cause)
			}
		})
	})
}

// The time limit of the start must not limit the runtime's life.
func TestStartContextDoesNotOutliveTheStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := Start(ctx, inProcess(t, fakecli.Script{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, r)
	cancel()
	if _, err := r.Conn().Call(t.Context(), "ping", []byte("{}")); err != nil {
		t.Errorf("ping after the start's context ended: %v", err)
	}
}

func TestPrepareAndRunnerFailTheStart(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	cfg := inProcess(t, fakecli.Script{}, nil)
	cfg.Prepare = func(ctx context.Context, r *Runtime) error {
		if _, err := r.Conn().Call(ctx, "ping", []byte("{}")); err != nil {
			return err
		}
		return broken
	}
	if _, err := Start(t.Context(), cfg); !errors.Is(err, broken) || fault.ReasonOf(err) != fault.CLIStartFailed {
		t.Errorf("Start with a failing Prepare = %v", err)
	}
	cfg.Runner = InProcess(func(context.Context, Spec) (io.ReadWriteCloser, error) { return nil, broken })
	if _, err := Start(t.Context(), cfg); !errors.Is(err, broken) || fault.ReasonOf(err) != fault.CLIStartFailed {
		t.Errorf("Start with a failing Runner = %v", err)
	}
}

func TestExitAtStartSaysWhy(t *testing.T) {
	t.Parallel()
	cfg := spawned(t, fakecli.Script{Start: fakecli.Start{Crash: true, ExitCode: 3, Stderr: "license expired\n"}}, "")
	_, err := Start(t.Context(), cfg)
	var f *fault.Error
	if !errors.As(err, &f) || f.Reason != fault.CLIStartFailed || f.Metadata["stderr"] != "license expired" {
		t.Fatalf("Start = %#v", err)
	}
	for _, want := range []string{"exit status 3", "license expired"} {
		if !strings.Contains(f.Error(), want) {
			t.Errorf("%q does not say %q", f.Error(), want)
		}
	}
}
