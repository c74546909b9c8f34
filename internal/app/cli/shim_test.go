package cli

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/internal/shim"
)

// TestForeignFlags: what is the CLI's own on the command line of the shim.
func TestForeignFlags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, args, ours, foreign string }{
		{"none", "--headless --stdio --log-level error", "--headless --stdio --log-level error", ""},
		{"a switch", "--yolo --headless --stdio", "--headless --stdio", "--yolo"},
		{"a value", "--stdio --log-dir /var/log --port 1", "--stdio --port 1", "--log-dir /var/log"},
		{"several values", "--deny-tool shell write --stdio", "--stdio", "--deny-tool shell write"},
		{"a value behind =", "--mode=plan --grace=1s", "--grace=1s", "--mode=plan"},
		{"at the end", "--stdio --add-dir", "--stdio", "--add-dir"},
		{"our value is like a flag", "--token --yolo --stdio", "--token --yolo --stdio", ""},
		{"no flag", "--stdio serve --yolo", "--stdio serve --yolo", ""},
		{"no flag of a server", "login --headless --stdio", "--headless --stdio", "login"},
		{"a bad port", "--headless --port abc", "--headless", "--port abc"},
		{"a bad time", "--session-idle-timeout=soon --headless", "--headless", "--session-idle-timeout=soon"},
		{"a bad level", "--headless --log-level loud", "--headless", "--log-level loud"},
		{"levels", "--log-level warn --log-level debug", "--log-level warn --log-level debug", ""},
		{"help", "--help --yolo", "--help --yolo", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var o shimOptions
			f := newFlags("shim", "", "")
			o.register(f)
			ours, foreign := f.foreign(strings.Fields(tc.args))
			if !slices.Equal(ours, strings.Fields(tc.ours)) || !slices.Equal(foreign, strings.Fields(tc.foreign)) {
				t.Errorf("foreign(%q) = %q, %q, want %q, %q", tc.args, ours, foreign, tc.ours, tc.foreign)
			}
		})
	}
}

// TestShimCounts: what a shim did is printed at its end, and written where it is to be.
func TestShimCounts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "counts.json")
	p, _, stderr := newProgram(nil, "")
	in, requests := io.Pipe()
	replies, out := io.Pipe()
	p.stdin, p.stdout = in, &output{w: out}
	ended := make(chan int, 1)
	go func() {
		ended <- p.main(t.Context(),
			[]string{"shim", "--stdio", "--target", server(t), "--counts", "--counts-file", file})
	}()
	conn := rpcconn.New(struct {
		io.Reader
		io.WriteCloser
	}{replies, requests}, rpcconn.Options{})
	for method, params := range map[string]string{"connect": `{}`, "session.destroy": `{"sessionId":"nobody"}`} {
		if _, err := conn.Call(t.Context(), method, []byte(params)); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	_ = requests.Close()
	if code := <-ended; code != exitOK {
		t.Errorf("ended with %d: %s", code, stderr)
	}
	_ = out.Close()
	_ = conn.Close()
	conn.Wait()
	for _, line := range []string{"typed\t1\tconnect\n", "own\t1\tsession.destroy\n"} {
		if !strings.Contains(stderr.String(), line) {
			t.Errorf("printed %q, want %q in it", stderr, line)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var counts shim.Counts
	if err := json.Unmarshal(text, &counts); err != nil || counts.Typed["connect"] != 1 ||
		counts.Own["session.destroy"] != 1 {
		t.Errorf("the file has %s (%v)", text, err)
	}
}

// TestShimProcessors: a shim for one program in front of another process uses one processor, unless the user says how
// many.
func TestShimProcessors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		o    shimOptions
		env  []string
		want []int
	}{
		{shimOptions{stdio: true, target: "unix:/s"}, nil, []int{1}},
		{shimOptions{stdio: true, target: "unix:/s"}, []string{"GOMAXPROCS=4"}, nil},
		{shimOptions{target: "unix:/s"}, nil, nil},
		{shimOptions{stdio: true}, nil, nil},
	} {
		p, _, _ := newProgram(tc.env, "")
		var got []int
		p.processors = func(n int) { got = append(got, n) }
		tc.o.useOneProcessor(p)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%+v with %q sets %v, want %v", tc.o, tc.env, got, tc.want)
		}
	}
}

// TestShimFlagsOfTheCLI: with a bridge elsewhere the CLI's command line is not ours to change.
func TestShimFlagsOfTheCLI(t *testing.T) {
	t.Parallel()
	r := run(t, nil, "", "shim", "--stdio", "--target", "unix:/nowhere", "--deny-tool", "shell")
	if r.code != exitUsage || !strings.Contains(r.stderr, `"--deny-tool"`) {
		t.Errorf("code %d, %q; want a refusal that names the flag", r.code, r.stderr)
	}
}
