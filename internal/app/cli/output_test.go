package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A line of stderr begins on a line of its own if stdout, on which a line is open, is the same file.
func TestBesides(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "both"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	other, err := os.OpenFile(file.Name(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	out := &output{w: file}
	both, apart := newBesides(other, out), newBesides(os.Stderr, out)
	if apart != os.Stderr {
		t.Errorf("another stderr is %T", apart)
	}
	for _, one := range []struct {
		to   any
		text string
	}{{out, "streamed"}, {both, "broken\n"}, {out, "goes on\n"}, {both, "restored\n"}} {
		w := one.to.(interface{ Write([]byte) (int, error) })
		if _, err := w.Write([]byte(one.text)); err != nil {
			t.Fatal(err)
		}
		if _, err := file.Seek(0, 2); err != nil {
			t.Fatal(err)
		}
	}
	const want = "streamed\nbroken\ngoes on\nrestored\n"
	if text, err := os.ReadFile(file.Name()); err != nil || string(text) != want {
		t.Errorf("%q, %v", text, err)
	}
}

// What stdout could not take is the command's error, unless the reader has gone or something else is wrong.
func TestOutputEnds(t *testing.T) {
	t.Parallel()
	other := errors.New("refused")
	for name, tc := range map[string]struct{ failed, err, want error }{
		"nothing wrong":          {nil, nil, nil},
		"ignored":                {syscall.ENOSPC, nil, syscall.ENOSPC},
		"after the help":         {syscall.ENOSPC, errHelped, syscall.ENOSPC},
		"reported":               {syscall.ENOSPC, outputError{syscall.ENOSPC}, syscall.ENOSPC},
		"something else":         {syscall.ENOSPC, other, other},
		"the reader has gone":    {syscall.EPIPE, nil, nil},
		"it has gone, and wrong": {syscall.EPIPE, other, other},
	} {
		o := &output{w: failing{tc.failed}}
		if _, err := fmt.Fprint(o, "text"); !errors.Is(err, tc.failed) {
			t.Errorf("%s: the command sees %v", name, err)
		}
		if got := o.end(tc.err); !errors.Is(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// failing is an output that fails.
type failing struct{ err error }

// Write implements io.Writer.
func (f failing) Write(text []byte) (int, error) { return len(text), f.err }

// A text that fits the terminal is printed, a longer one goes to the pager, and nothing is lost if there is none.
func TestPager(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("line\n", 30)
	for name, tc := range map[string]struct{ text, pager, printed, paged string }{
		"fits":            {"one\ntwo\n", "tee", "one\ntwo\n", ""},
		"empty":           {"", "tee", "", ""},
		"too many lines":  {long, "tee", long, long},
		"too wide":        {strings.Repeat("x", 200), "tee", strings.Repeat("x", 200), strings.Repeat("x", 200)},
		"no such pager":   {long, "no-such-pager", long, ""},
		"ends early":      {strings.Repeat(long, 100_000), "true", "", ""},
		"fails, and then": {strings.Repeat(long, 100_000), "false", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := filepath.Join(t.TempDir(), "seen")
			var out bytes.Buffer
			o := &output{w: &out, held: new(bytes.Buffer), width: 10, height: 10}
			o.start = func() *pager {
				cmd := exec.Command(tc.pager, seen)
				cmd.Stdout = &out
				return startPager(cmd)
			}
			for part := range strings.SplitAfterSeq(tc.text, "\n") {
				if _, err := fmt.Fprint(o, part); err != nil {
					break
				}
			}
			if err := o.end(nil); err != nil {
				t.Error(err)
			}
			paged, _ := os.ReadFile(seen) // none if there was no pager
			if out.String() != tc.printed || string(paged) != tc.paged {
				t.Errorf("printed %.100q, to the pager %.100q", out.String(), paged)
			}
		})
	}
}
