package clients

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take before a test gives up. It is far more than
// anything takes: a loaded machine is no failure.
const patience = 90 * time.Second

// program is a child that ends before its test does.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Scanner
	// kept is output that is only shown when the test fails: a program's standard error, or a daemon's later lines.
	// keptEnded is closed when keep is done.
	kept      *bytes.Buffer
	keptEnded chan struct{}
}

// startProgram starts an example in a directory, with variables besides the test's own.
// Its standard output is read by line, until and rest.
func startProgram(t *testing.T, dir string, env []string, command ...string) *program {
	t.Helper()
	p := newProgram(t, dir, env, command)
	p.cmd.Stderr = p.kept
	p.start()
	return p
}

// startDaemon starts a program that prints to standard error, and stops it at the end of the test. line and until read
// all of its output.
func startDaemon(t *testing.T, dir string, env []string, command ...string) *program {
	t.Helper()
	p := newProgram(t, dir, env, command)
	p.cmd.Stderr = p.cmd.Stdout
	p.start()
	return p
}

func newProgram(t *testing.T, dir string, env, command []string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	p := &program{t: t, kept: &bytes.Buffer{}}
	p.cmd = exec.CommandContext(ctx, command[0], command[1:]...)
	p.cmd.Dir, p.cmd.Env = dir, append(os.Environ(), env...)
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 20 * time.Second
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	t.Cleanup(func() {
		cancel()
		p.end()
		if t.Failed() {
			t.Logf("%q:\n%s", command, p.kept)
		}
	})
	return p
}

func (p *program) start() {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("start %q: %v", p.cmd.Args, err)
	}
}

// end waits for a program that got a signal to end.
func (p *program) end() {
	if p.cmd.Process == nil || p.cmd.ProcessState != nil {
		return
	}
	p.keep(io.Discard)
	<-p.keptEnded
	_ = p.cmd.Wait()
	if !p.cmd.ProcessState.Success() {
		p.t.Errorf("%q ended with: %v", p.cmd.Args, p.cmd.ProcessState)
	}
}

// keep collects the remaining output there.
func (p *program) keep(to io.Writer) {
	if p.keptEnded != nil {
		return
	}
	p.keptEnded = make(chan struct{})
	go func() {
		defer close(p.keptEnded)
		for p.out.Scan() {
			_, _ = fmt.Fprintln(to, p.out.Text())
		}
	}()
}

// line waits for the next line; it is empty at the end.
func (p *program) line() string {
	p.t.Helper()
	if !p.out.Scan() {
		return ""
	}
	return p.out.Text()
}

// until gives the lines up to the first that contains a text, which must come.
func (p *program) until(text string) []string {
	p.t.Helper()
	var lines []string
	for p.out.Scan() {
		lines = append(lines, p.out.Text())
		if strings.Contains(p.out.Text(), text) {
			return lines
		}
	}
	p.t.Fatalf("%q did not print %q but:\n%s", p.cmd.Args, text, strings.Join(lines, "\n"))
	return nil
}

// rest gives the lines that are left once the program has ended, which it must do well.
func (p *program) rest() []string {
	p.t.Helper()
	var lines []string
	for p.out.Scan() {
		lines = append(lines, p.out.Text())
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%q ended with: %v; it had printed:\n%s", p.cmd.Args, err, strings.Join(lines, "\n"))
	}
	return lines
}
