package wallclock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

// followEnv makes this program one that follows a clock: it has the clock's path.
const followEnv = "WALLCLOCK_FOLLOW"

func TestMain(m *testing.M) {
	if path := os.Getenv(followEnv); path != "" {
		if err := tell(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leak.Main(m)
}

// tell follows a clock and prints whether that works here and, for each line of its input, the wall clock and how much
// time has passed.
func tell(path string) error {
	err := Follow(path)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	fmt.Println(err == nil)
	begin := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(time.Now().UnixMilli(), time.Since(begin).Milliseconds())
	}
	return nil
}

// The wall clock of a process that follows jumps there and back, its monotonic clock does not, and the clock of the
// process that sets it stays.
func TestFollow(t *testing.T) {
	t.Parallel()
	c, err := New(filepath.Join(t.TempDir(), "clock"))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), followEnv+"="+c.Path())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	var works bool
	if _, err := fmt.Fscanln(out, &works); err != nil {
		t.Fatal(err)
	}
	if !works {
		t.Skip("the wall clock cannot be moved on this system")
	}
	begin := time.Now()
	for _, by := range []time.Duration{0, time.Hour, -25 * time.Hour, 0} {
		if err := c.Set(by); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		var wall, passed int64
		if _, err := fmt.Fscanln(out, &wall, &passed); err != nil {
			t.Fatal(err)
		}
		const slack = 30 * time.Second // of a busy machine
		if off := time.UnixMilli(wall).Sub(time.Now().Add(by)).Abs(); off > slack {
			t.Errorf("with the clock moved by %v the process's differs by %v from it", by, off)
		}
		if p := time.Duration(passed) * time.Millisecond; p < 0 || p > time.Since(begin)+time.Second {
			t.Errorf("with the clock moved by %v, %v have passed", by, p)
		}
	}
}
