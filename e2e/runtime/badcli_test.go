package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// fakeEnv makes this test binary a fake CLI, for executables that start it so.
const fakeEnv = "E2E_FAKE_CLI"

func init() {
	if os.Getenv(fakeEnv) != "" {
		os.Exit(fakecli.Main(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
	}
}

// fakeCLI makes an executable that plays a script of package fakecli.
func fakeCLI(t *testing.T, script string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return executable(t, fmt.Sprintf("%s=1 FAKECOPILOT_SCRIPT='%s' exec '%s' \"$@\"", fakeEnv, script, self))
}

// executable makes a shell script.
func executable(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "copilot")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	return path
}

// clientOf gives a client of a server whose CLI is at a path. Nothing has started it.
func clientOf(t *testing.T, ctx context.Context, cli string, changes ...func(*app.Config)) *copilot.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e") // short: it is in a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := app.Config{
		Listen: []string{"unix:" + filepath.Join(dir, "s")}, CLIPath: cli, NoInstall: true, NoLogin: true,
		Home: filepath.Join(dir, "copilot"), UserHome: dir, WorkDir: dir, DrainGrace: time.Second,
	}
	for _, change := range changes {
		change(&config)
	}
	a, err := app.New(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- a.Run(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("end of the server: %v", err)
		}
	})
	c, err := copilot.Dial(ctx, a.Target(), copilot.WithoutReconnect())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestBadCLI has CLIs that are none, too old, of another protocol, or that end at once. Calls that need one get an
// error; the server lives on.
func TestBadCLI(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]struct {
		path   func(t *testing.T) string
		code   codes.Code
		reason bridgev1.ErrorReason
		// stderr is part of the metadata of that name.
		stderr string
	}{
		"missing": {
			func(t *testing.T) string { return filepath.Join(t.TempDir(), "nowhere", "copilot") },
			codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_CLI_NOT_FOUND, "",
		},
		"not executable": {
			func(t *testing.T) string {
				path := executable(t, "exit 0")
				if err := os.Chmod(path, 0o600); err != nil {
					t.Fatal(err)
				}
				return path
			},
			codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_CLI_NOT_FOUND, "",
		},
		"too old": {
			func(t *testing.T) string { return fakeCLI(t, `{"version":"1.0.5"}`) },
			codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_CLI_UNSUPPORTED, "",
		},
		"another protocol": {
			func(t *testing.T) string { return fakeCLI(t, `{"protocol":2}`) },
			codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_CLI_UNSUPPORTED, "",
		},
		"ends at its start": {
			func(t *testing.T) string {
				return fakeCLI(t,
					`{"start":{"stderr":"first line\nthe licence has run out\n","crash":true,"exitCode":3}}`)
			},
			codes.Unavailable, bridgev1.ErrorReason_ERROR_REASON_CLI_START_FAILED, "the licence has run out",
		},
		"talks nonsense": {
			func(t *testing.T) string {
				return executable(t, `printf 'Content-Length: nonsense\r\n\r\n'; cat > /dev/null`)
			},
			codes.Unavailable, bridgev1.ErrorReason_ERROR_REASON_CLI_START_FAILED, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			defer cancel()
			c := clientOf(t, ctx, bad.path(t))
			_, err := c.CreateSession(ctx, copilot.SessionOptions{})
			e := harness.WantError(t, err, bad.code, bad.reason)
			if !strings.Contains(e.Metadata["stderr"], bad.stderr) {
				t.Errorf("stderr is %q, want %q in it", e.Metadata["stderr"], bad.stderr)
			}
			_, err = c.Runtimes().Ping(ctx, &bridgev1.PingRequest{})
			if e, ok := copilot.FromError(err).(*copilot.Error); !ok || e.Code != bad.code {
				t.Errorf("ping: %v", err)
			}
			if _, err := c.ServerInfo(ctx); err != nil {
				t.Errorf("the server does not live on: %v", err)
			}
		})
	}
}

// TestFakeCLIIsGoodOtherwise: what the tests above are refused for is not that it is a fake.
func TestFakeCLIIsGoodOtherwise(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	c := clientOf(t, ctx, fakeCLI(t, `{"prompts":[{"turns":[{"text":"hello"}]}]}`))
	s, err := c.CreateSession(ctx, copilot.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.SendAndWait(ctx, "hi"); err != nil || out.Text() != "hello" {
		t.Errorf("outcome %v, %v", out, err)
	}
}

// TestModelEndpointIsDown has a provider at an address without a listener.
func TestModelEndpointIsDown(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	config := st.Config()
	config.Provider.BaseUrl = "http://" + deadAddress(t) + "/v1"
	s := st.Create(copilot.SessionOptions{Config: config})
	out := st.GoTurn(s, "anybody?")()
	te := out.Error()
	if out.Status() != copilot.TurnFailed || te.GetErrorType() == "" || te.GetMessage() == "" ||
		te.StatusCode != nil {
		t.Errorf("the turn ended as %v", out)
	}
	_, err := st.Client.Sessions().UpdateProvider(st.Ctx, &bridgev1.UpdateProviderRequest{
		SessionId: s.ID(), Provider: st.Provider(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if out := st.Say(s, "and now?"); out.Text() != "You said: and now?" {
		t.Errorf("the agent said %q", out.Text())
	}
}

// deadAddress is a loopback address without a listener.
func deadAddress(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// TestNoProviderAndNoLogin: there is no model to ask.
func TestNoProviderAndNoLogin(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	config := st.Config()
	config.Provider = nil
	s := st.Create(copilot.SessionOptions{Config: config})
	out := st.GoTurn(s, "anybody?")()
	if out.Status() != copilot.TurnFailed || out.Error().GetMessage() == "" {
		t.Errorf("the turn ended as %v", out)
	}
	if _, err := s.Get(st.Ctx); err != nil {
		t.Error(err)
	}
}

// TestUnreadableHistory: the session cannot be opened, all others can.
func TestUnreadableHistory(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{})
	st.Say(s, "hello")
	st.Written(s)
	if err := s.Disconnect(st.Ctx); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(st.Host.Home, "session-state", s.ID(), "events.jsonl")
	if err := os.WriteFile(path, []byte("this is no history\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := st.Dial().ResumeSession(st.Ctx, s.ID(), copilot.SessionOptions{Config: st.Config()})
	var e *copilot.Error
	if !errors.As(err, &e) || e.Reason == bridgev1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		t.Errorf("resume: %v", err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Error("the history was thrown away")
	}
	st.Say(st.Create(copilot.SessionOptions{}), "all well?")
}
