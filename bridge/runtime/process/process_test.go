//go:build unix

package process_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
)

func TestEchoAndOrderlyEnd(t *testing.T) {
	t.Parallel()
	p, _ := start(t, roleOptions("echo"))
	if _, err := io.WriteString(p, "hello\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(p)
	if got := readLine(t, r); got != "hello" {
		t.Errorf("echo = %q", got)
	}
	if err := p.CloseWrite(); err != nil {
		t.Errorf("CloseWrite: %v", err)
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("read after the end = %v, want EOF", err)
	}
	<-p.Done()
	if e := p.Exit(); !e.Clean() || e.Cause != nil || e.Forced != "" {
		t.Errorf("Exit = %+v, want a clean one by itself", e)
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	_, err := process.Start(t.Context(), process.Options{Path: "/nonexistent/program"})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Start of a missing program = %v", err)
	}
	cause := errors.New("not any more")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := process.Start(ctx, roleOptions("echo")); !errors.Is(err, cause) {
		t.Errorf("Start in a cancelled context = %v", err)
	}
}

func TestEndEscalates(t *testing.T) {
	t.Parallel()
	cause := errors.New("the test is over")
	for _, tc := range []struct {
		role   string
		code   int
		signal string
		forced string
	}{
		{"echo", 0, "", ""},
		{"polite", 7, "", "SIGTERM"},
		{"deaf", -1, "terminated", "SIGTERM"},
		{"stubborn", -1, "killed", "SIGKILL"},
	} {
		t.Run(tc.role, func(t *testing.T) {
			t.Parallel()
			o := roleOptions(tc.role)
			o.InputGrace, o.TermGrace = 300*time.Millisecond, 300*time.Millisecond
			if tc.forced != "SIGKILL" {
				o.TermGrace = time.Minute // never used up
			}
			if tc.forced == "" {
				o.InputGrace = time.Minute
			}
			p, cancel := start(t, o)
			if tc.forced != "" {
				readLine(t, bufio.NewReader(p)) // its signal handlers are set up
			}
			cancel(cause)
			<-p.Done()
			e := p.Exit()
			if e.Code != tc.code || e.Signal != tc.signal || e.Forced != tc.forced {
				t.Errorf("Exit = %+v, want %+v", e, tc)
			}
			if !errors.Is(e, cause) || !strings.Contains(e.Error(), cause.Error()) {
				t.Errorf("the exit %q does not name who asked", e.Error())
			}
		})
	}
}

func TestCloseEndsTheChild(t *testing.T) {
	t.Parallel()
	o := roleOptions("deaf")
	o.InputGrace = 50 * time.Millisecond
	p, _ := start(t, o)
	readLine(t, bufio.NewReader(p))
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	<-p.Done()
	if e := p.Exit(); !errors.Is(e, process.ErrStreamClosed) {
		t.Errorf("Exit = %v", e)
	}
}

func TestStderrIsReadBoundedAndReported(t *testing.T) {
	t.Parallel()
	o := roleOptions("noisy")
	var lines []string
	o.Stderr = func(line string) { lines = append(lines, line) }
	p, _ := start(t, o)
	<-p.Done()
	if len(lines) != 5002 || lines[4999] != "line 4999" {
		t.Fatalf("got %d lines", len(lines))
	}
	if n := len(lines[5000]); n != 4096 {
		t.Errorf("the over-long line was cut to %d bytes, want 4096", n)
	}
	e := p.Exit()
	if e.Code != 3 || !strings.HasSuffix(e.Stderr, "last words \uFFFD") || len(e.Stderr) > 9<<10 {
		t.Errorf("Exit: code %d, %d bytes of stderr ending in %q", e.Code, len(e.Stderr),
			e.Stderr[max(0, len(e.Stderr)-20):])
	}
}

func TestEnvironmentIsOnlyWhatWasGiven(t *testing.T) {
	t.Setenv("PLANTED_SECRET", "leak")
	p, _ := start(t, roleOptions("env", "A=b"))
	out, err := io.ReadAll(p)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(line, "=")
		got[name] = true
	}
	want := []string{roleEnv, "PATH", "GORACE", "A", process.MarkerEnv}
	for _, name := range want {
		if !got[name] {
			t.Errorf("%s is missing", name)
		}
	}
	if len(got) != len(want) {
		t.Errorf("environment = %q", out)
	}
}

func TestWriteNowDoesNotWait(t *testing.T) {
	t.Parallel()
	p, _ := start(t, roleOptions("deaf"))
	total, piece := 0, make([]byte, 64<<10)
	for {
		n, err := p.WriteNow(piece)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break // the pipe is full, and the child reads nothing
		}
		total += n
	}
	if total == 0 {
		t.Error("nothing was written to an empty pipe")
	}
	_ = p.Close()
	if _, err := p.WriteNow(piece); err == nil {
		t.Error("a closed input takes more")
	}
}
