//go:build unix

package shim

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// TestShimEndsItsOutputsFirst: when the CLI refuses its flags, the outputs of the shim end before its input, as the CLI's
// do. A program that still writes to the input can then read why the process ends.
func TestShimEndsItsOutputsFirst(t *testing.T) {
	t.Parallel()
	_, shim := standIns(t)
	home := harness.RealDir(t)
	for range 10 {
		cmd := exec.CommandContext(t.Context(), shim[0], append(shim[1:len(shim):len(shim)],
			"--headless", "--no-auto-update", "--stdio", "--no-such-flag")...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TERM=dumb", "HOME=" + home, "TMPDIR=" + home,
			"COPILOT_HOME=" + t.TempDir()}
		pipes := make([]int, 3) // our ends of stdin, stdout and stderr
		var theirs []*os.File
		for i := range pipes {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			ours, their := r, w
			if i == 0 {
				ours, their = w, r
			}
			t.Cleanup(func() { _ = ours.Close() })
			pipes[i], theirs = int(ours.Fd()), append(theirs, their)
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for _, f := range theirs {
			_ = f.Close()
		}
		input := []unix.PollFd{{Fd: int32(pipes[0]), Events: 0}}
		outputs := []unix.PollFd{{Fd: int32(pipes[1])}, {Fd: int32(pipes[2])}}
		for input[0].Revents&unix.POLLERR == 0 {
			if _, err := unix.Poll(input, int(harness.Patience.Milliseconds())); err != nil && err != unix.EINTR {
				t.Fatal(err)
			}
		}
		if n, err := unix.Poll(outputs, 0); err != nil || n != 2 {
			t.Errorf("the input has ended before the outputs: %v, %v", outputs, err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("ended without an error")
		}
	}
}

// TestShimDeadTarget: a shim whose bridge cannot be reached, or does not answer, ends with an error within seconds.
func TestShimDeadTarget(t *testing.T) {
	t.Parallel()
	path, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	dir := harness.RealDir(t)
	silent, err := net.Listen("unix", filepath.Join(dir, "silent"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	go func() {
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}()
	for name, target := range map[string]string{
		"no socket": "unix:" + filepath.Join(dir, "none"), "no port": harness.FreeAddress(t),
		"no answer": "unix:" + filepath.Join(dir, "silent"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), path, "shim", "--headless", "--stdio", "--target", target)
			cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir}
			in, err := cmd.StdinPipe() // stays open
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			begun := time.Now()
			said, err := cmd.CombinedOutput()
			if took := time.Since(begun); took > 30*time.Second {
				t.Errorf("ended after %s", took)
			}
			if err == nil || !strings.Contains(string(said), target) {
				t.Errorf("%v: %s", err, said)
			}
		})
	}
}
