package harness

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
)

// Installed returns the path of a program: the value of the environment variable env, or what PATH has. A test without
// the program fails in CI and is skipped elsewhere.
func Installed(t *testing.T, program, env string) string {
	t.Helper()
	if path := os.Getenv(env); path != "" {
		return path
	}
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("%s is not installed", program)
	default:
		t.Skipf("NOT RUN: %s is not installed", program)
	}
	return path
}

// WriteFiles writes files, which only this user can read, into a directory.
func WriteFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Edited returns the text of a file with changes. Each text that they replace has to be in the file.
func Edited(t *testing.T, file string, changes map[string]string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for from, to := range changes {
		if !strings.Contains(text, from) {
			t.Fatalf("%q is not in %s", from, file)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	return text
}

// Proxy is the process of a proxy.
type Proxy struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended, for instance because its address is in use
}

// StartProxy starts a proxy until the end of the test.
func StartProxy(t *testing.T, program string, args ...string) *Proxy {
	t.Helper()
	var log bytes.Buffer
	p := &Proxy{cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Stderr, p.cmd.Stdout = &log, &log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var result error
	go func() {
		defer close(p.ended)
		result = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.Stop(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("%s: %v\n%s", filepath.Base(program), result, &log)
		}
	})
	return p
}

// Signal sends the proxy a signal.
func (p *Proxy) Signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// Stop ends the proxy and waits for its end.
func (p *Proxy) Stop(sig syscall.Signal) {
	p.Signal(sig)
	<-p.ended
}

// DialProxy connects through a proxy, which may take its time to start, until ctx ends. It returns nil if the proxy has
// ended.
func DialProxy(
	ctx context.Context, t *testing.T, p *Proxy, address string, opts ...copilot.Option,
) *copilot.Client {
	t.Helper()
	for {
		remote, err := copilot.Dial(ctx, address, opts...)
		if err == nil {
			return remote
		}
		select {
		case <-p.ended:
			return nil
		case <-ctx.Done():
			t.Fatalf("the proxy does not answer: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
