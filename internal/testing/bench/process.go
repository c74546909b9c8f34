package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/freeport"
)

const (
	startTimeout = 90 * time.Second // the real CLI may have to unpack itself
	endTimeout   = 30 * time.Second
)

// bridge is a copilot-grpc serve, in a separate process.
type bridge struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	dir    string
	unix   string
	tcp    string
	token  string
	// ready is how long it took to answer its first call.
	ready time.Duration
}

// startBridge starts the server with that CLI, and waits until it answers.
func (r *run) startBridge(ctx context.Context, cli string, env ...string) (*bridge, error) {
	b, err := newBridge()
	if err != nil {
		return nil, err
	}
	dir := b.dir
	b.command(ctx, r.cfg.Server, "serve", "--listen", b.unix, "--listen", b.tcp,
		"--cli", cli, "--no-login", "--home", filepath.Join(dir, "home"), "--user-home", dir, "--work-dir", dir,
		"--data-dir", filepath.Join(dir, "data"), "--admin-listen", "unix:"+b.admin(),
		"--log-level", "warn", "--log-format", "json")
	b.cmd.Env = append(append(os.Environ(), "COPILOT_GRPC_TOKEN="+b.token), env...)
	return b, b.start(ctx)
}

// startRaw starts the server that a fan-out is compared with.
func (r *run) startRaw(ctx context.Context) (*bridge, error) {
	b, err := newBridge()
	if err != nil {
		return nil, err
	}
	b.command(ctx, r.cfg.Raw, strings.TrimPrefix(b.unix, "unix:"), b.tcp, b.admin())
	return b, b.start(ctx)
}

func newBridge() (*bridge, error) {
	dir, err := os.MkdirTemp("", "copilot-grpc-bench-")
	if err != nil {
		return nil, err
	}
	address, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	return &bridge{dir: dir, unix: "unix:" + filepath.Join(dir, "s"), tcp: address, token: rand.Text()}, nil
}

func (b *bridge) command(ctx context.Context, path string, args ...string) {
	b.cmd = exec.CommandContext(ctx, path, args...)
	b.cmd.Stderr = &b.stderr
	b.cmd.Cancel = func() error { return b.cmd.Process.Signal(syscall.SIGTERM) }
	b.cmd.WaitDelay = endTimeout
}

// start starts the process, and waits until it answers.
func (b *bridge) start(ctx context.Context) error {
	begin := time.Now()
	if err := b.cmd.Start(); err != nil {
		return errors.Join(err, os.RemoveAll(b.dir))
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c, err := b.dialReady(ctx)
	if err != nil {
		return errors.Join(err, b.stop())
	}
	b.ready = time.Since(begin)
	return c.Close()
}

// dialReady dials as soon as the socket takes connections: gRPC's own retry would wait
// longer.
func (b *bridge) dialReady(ctx context.Context) (*copilot.Client, error) {
	socket := strings.TrimPrefix(b.unix, "unix:")
	for {
		if probe, err := net.Dial("unix", socket); err == nil {
			_ = probe.Close()
			return copilot.Dial(ctx, b.unix)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// dial connects as clients/go does, over the unix socket or TCP.
func (b *bridge) dial(ctx context.Context, tcp bool) (*copilot.Client, error) {
	target := b.unix
	if tcp {
		target = b.tcp
	}
	return copilot.Dial(ctx, target, copilot.WithToken(b.token))
}

// admin is the socket of the server's profiles.
func (b *bridge) admin() string { return filepath.Join(b.dir, "admin") }

func (b *bridge) cpu() (time.Duration, error) { return cpuTime(b.cmd.Process.Pid) }

// settle waits until the server has finished what it does later: it saves the state of sessions after their turns.
func (b *bridge) settle(ctx context.Context) error {
	const pause, idle = 100 * time.Millisecond, 2 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	last, err := b.cpu()
	for err == nil {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("the server is not idle after %v: %w", endTimeout, ctx.Err())
		}
		now, failed := b.cpu()
		if now-last < idle {
			return failed
		}
		last, err = now, failed
	}
	return err
}

// stop ends the server in order and removes what it left.
func (b *bridge) stop() error {
	err := b.cmd.Process.Signal(syscall.SIGTERM)
	force := time.AfterFunc(endTimeout, func() { _ = b.cmd.Process.Kill() })
	defer force.Stop()
	if wait := b.cmd.Wait(); wait != nil && err == nil {
		err = fmt.Errorf("bridge: %w: %s", wait, b.stderr.String())
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}
