package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// exitError ends the program with a code; what there is to say has been said.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// starts is a Runner that remembers the CLI that it started last.
type starts struct {
	runtime.Runner

	mu   sync.Mutex
	last runtime.Transport
}

func (s *starts) Start(ctx context.Context, spec runtime.Spec) (runtime.Transport, error) {
	t, err := s.Runner.Start(ctx, spec)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = t
	return t, err
}

// ended returns how the last CLI ended, if the shim owned it and did not end it. A CLI that fails closes its stream
// before it exits: on a busy machine the bridge notices the first long before the second, and asks it to end.
func (s *starts) ended() (exit exitError, stderr string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || s.last.Peer().PID == 0 {
		return 0, "", false
	}
	select {
	case <-s.last.Done():
	default:
		return 0, "", false
	}
	e := s.last.Exit()
	failed := errors.Is(e.Cause, process.ErrStreamClosed) && e.Forced == "" && e.Code != 0
	return exitError(e.Code), e.Stderr, e.Signal == "" && (e.Cause == nil || failed)
}

// startCLI starts the CLI of a private bridge before the shim answers anything. A CLI that ends
// instead, because of an unknown flag say, has the shim end like it: with what it wrote to
// standard error and with its code.
func startCLI(ctx context.Context, b *shimBridge, s *starts, stderr io.Writer) error {
	_, err := b.client.Runtimes().Ping(ctx, &bridgev1.PingRequest{})
	if err == nil {
		return nil
	}
	if exit, text, ok := s.ended(); ok {
		if text != "" {
			_, _ = fmt.Fprintln(stderr, text)
		}
		return exit
	}
	return fmt.Errorf("starting the CLI: %w", err)
}

// versionOfCLI returns the version of the CLI that the shim stands in for: that of the bridge of
// --target, or that of the executable that a private bridge would start.
func (o *shimOptions) versionOfCLI(ctx context.Context, p *program) (string, error) {
	if o.target == "" {
		l := clibin.Locator{Explicit: o.realCLI(p)}
		bin, err := l.Find(ctx)
		if err == nil && bin.Version == "" {
			err = fmt.Errorf("%q does not report its version", bin.Path)
		}
		return bin.Version, err
	}
	logger, closeLog, err := o.logger(p.stderr)
	if err != nil {
		return "", err
	}
	defer closeLog()
	client, err := o.dial(ctx, p)
	if err != nil {
		return "", err
	}
	defer client.Close()
	info, err := o.reach(ctx, client, logger)
	if err != nil {
		return "", err
	}
	if info.GetCliVersion() != "" {
		return info.GetCliVersion(), nil
	}
	// No CLI is running there: a ping starts one.
	pong, err := client.Runtimes().Ping(ctx, &bridgev1.PingRequest{})
	if err == nil && pong.GetGreeting().GetVersion() == "" {
		err = errors.New("the bridge's CLI does not report its version")
	}
	return pong.GetGreeting().GetVersion(), err
}

func (o *shimOptions) printVersion(ctx context.Context, p *program) error {
	version, err := o.versionOfCLI(ctx, p)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.stdout, "GitHub Copilot CLI %s.\nRun 'copilot update' to check for updates.\n", version)
	return err
}
