// Package copilottest starts servers whose model is a script, for tests of agents without an
// account or a network:
//
//	func TestAgent(t *testing.T) {
//		server := copilottest.Start(t, copilottest.Say("rain").WhenUser("weather"))
//		session, err := server.Client().CreateSession(t.Context(), copilot.SessionOptions{})
//		…
//	}
//
// A test needs copilot-grpc on PATH and a Copilot CLI, which the server finds or installs.
// Without them it is skipped, or fails if the environment variable COPILOTTEST_REQUIRED is set.
package copilottest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/launch"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// RequiredEnv is the environment variable that makes tests fail which cannot run.
	RequiredEnv = "COPILOTTEST_REQUIRED"

	startTimeout   = 2 * time.Minute
	releaseTimeout = 10 * time.Second
	// modelLine begins the line of the output with the address of the model.
	modelLine = "A script plays the model: "
)

// Config describes a server.
type Config struct {
	// Rules are the script: the first rule that matches answers. Text that no rule matches is
	// repeated.
	Rules []Rule
	// Script is the path of a script as of docs/offline-model.md, instead of Rules.
	Script string
	// Binary is the server's program, looked up on PATH; default: that of the environment
	// variable COPILOT_GRPC_BINARY, else copilot-grpc.
	Binary string
	// Args are further arguments of `copilot-grpc serve`.
	Args []string
	// Env are further environment variables, as NAME=VALUE, such as COPILOT_CLI_PATH.
	Env []string
}

// Server is a private server with a scripted model, in directories of its own. It ends with its
// test.
type Server struct {
	t       testing.TB
	process *launch.Server
}

// Start starts a server with these rules.
func Start(t testing.TB, rules ...Rule) *Server {
	t.Helper()
	return Config{Rules: rules}.Start(t)
}

// Start starts a server.
func (c Config) Start(t testing.TB) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	process, err := launch.Start(ctx, launch.Options{
		Binary: c.Binary, Args: c.Args, Env: c.Env, Configure: c.configure,
	})
	if err != nil {
		if errors.Is(err, launch.ErrMissing) {
			skip(t, err)
		}
		t.Fatal(err)
	}
	s := &Server{t: t, process: process}
	t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			t.Errorf("copilottest: %v", err)
		}
		if t.Failed() {
			t.Logf("output of the server:\n%s", process.Output())
		}
	})
	s.needCLI(ctx)
	return s
}

// configure writes the script, and returns arguments that separate the server from the user's own.
func (c Config) configure(dir string) ([]string, error) {
	path := c.Script
	if path == "" {
		text, err := script(c.Rules)
		if err != nil {
			return nil, fmt.Errorf("copilottest: the script: %w", err)
		}
		path = filepath.Join(dir, "model.yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return nil, err
		}
	}
	return []string{
		"--offline-model", path, "--no-login", "--home", filepath.Join(dir, "copilot"), "--user-home", dir,
		"--work-dir", dir,
	}, nil
}

// needCLI starts a CLI process, and skips the test if there is no CLI.
func (s *Server) needCLI(ctx context.Context) {
	s.t.Helper()
	client, err := copilot.Dial(ctx, s.Target())
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = client.Close() }() // it has no sessions
	_, err = client.Runtimes().Ping(ctx, &bridgev1.PingRequest{})
	switch {
	case copilot.IsReason(err, bridgev1.ErrorReason_ERROR_REASON_CLI_NOT_FOUND):
		skip(s.t, err)
	case err != nil:
		s.t.Fatalf("copilottest: no CLI process: %v", copilot.FromError(err))
	}
}

func skip(t testing.TB, why error) {
	t.Helper()
	if os.Getenv(RequiredEnv) != "" {
		t.Fatalf("copilottest: %v", why)
	}
	t.Skipf("copilottest: this test needs copilot-grpc and a Copilot CLI: %v", why)
}

// Target returns the server's address, for [copilot.Dial] and COPILOT_GRPC_TARGET.
func (s *Server) Target() string { return s.process.Target() }

// Output returns what the server has printed, up to the last 1000 lines.
func (s *Server) Output() string { return s.process.Output() }

// Client connects to the server. The client is closed when the test ends.
func (s *Server) Client(opts ...copilot.Option) *copilot.Client {
	s.t.Helper()
	client, err := copilot.Dial(s.t.Context(), s.Target(), opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := client.Close(); err != nil {
			s.t.Errorf("copilottest: close the client: %v", err)
		}
	})
	return client
}

// Restart ends the server and starts it again with its sessions, on the same socket.
func (s *Server) Restart() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := s.process.Restart(ctx); err != nil {
		s.t.Fatal(err)
	}
}

// Release lets the model continue after [WaitFor], now or when it gets there.
func (s *Server) Release(gate string) {
	s.t.Helper()
	_, address, _ := strings.Cut(s.Output(), modelLine)
	address, _, _ = strings.Cut(address, "\n")
	ctx, cancel := context.WithTimeout(s.t.Context(), releaseTimeout)
	defer cancel()
	target := strings.TrimSpace(address) + "/_offline/release?gate=" + url.QueryEscape(gate)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, http.NoBody)
	if err != nil {
		s.t.Fatalf("copilottest: the model's address: %v", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatalf("copilottest: release %q: %v", gate, err)
	}
	_ = resp.Body.Close() // nothing is read
	if resp.StatusCode >= http.StatusMultipleChoices {
		s.t.Fatalf("copilottest: release %q: %s", gate, resp.Status)
	}
}
