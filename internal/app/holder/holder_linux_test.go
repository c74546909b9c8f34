package holder

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// heldEnv makes the test program a process that holds a port, a socket and a directory, until its input ends.
const heldEnv = "COPILOT_GRPC_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(heldEnv); dir != "" {
		hold(dir)
		return
	}
	os.Exit(m.Run())
}

func hold(dir string) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	unix, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		panic(err)
	}
	file, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		panic(err)
	}
	fmt.Println(tcp.Addr().(*net.TCPAddr).Port)
	_, _ = os.Stdin.Read(make([]byte, 1))
	_, _, _ = tcp.Close(), unix.Close(), file.Close()
}

// The process that has a port, a socket or a directory is found; processes with others are not.
func TestFinds(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "held") // short: it is in a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	other := exec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), heldEnv+"="+dir)
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = stdin.Close(), other.Wait() }()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	port := line[:len(line)-1]
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	own, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6: ", err)
	}
	defer own.Close()
	for name, tc := range map[string]struct {
		find func(string) (Process, bool)
		what string
		want int
	}{
		"a port":               {OfPort, "127.0.0.1:" + port, other.Process.Pid},
		"by name":              {OfPort, "localhost:" + port, other.Process.Pid},
		"on all addresses":     {OfPort, ":" + port, other.Process.Pid},
		"of another address":   {OfPort, "127.0.0.2:" + port, 0},
		"our own port":         {OfPort, own.Addr().String(), os.Getpid()},
		"no port":              {OfPort, "somewhere", 0},
		"a socket":             {OfSocket, filepath.Join(dir, "s"), other.Process.Pid},
		"another socket":       {OfSocket, filepath.Join(dir, "t"), 0},
		"a directory":          {OfDirectory, dir, other.Process.Pid},
		"a link to it":         {OfDirectory, link, other.Process.Pid},
		"the directory above":  {OfDirectory, filepath.Dir(link), 0},
		"a missing directory":  {OfDirectory, filepath.Join(dir, "none"), 0},
		"a directory below it": {OfDirectory, filepath.Join(dir, "lock"), 0},
	} {
		p, ok := tc.find(tc.what)
		if p.PID != tc.want || ok != (tc.want != 0) {
			t.Errorf("%s, %q: %+v, %t, want %d", name, tc.what, p, ok, tc.want)
		}
	}
	if p, _ := OfSocket(filepath.Join(dir, "s")); p.Name != filepath.Base(os.Args[0])[:min(15, len(filepath.Base(os.Args[0])))] ||
		p.String() != "process "+strconv.Itoa(p.PID)+" ("+p.Name+")" {
		t.Errorf("the process is %q", p)
	}
	if text := (Process{PID: os.Getpid()}).String(); text != "this process" {
		t.Errorf("our own process is %q", text)
	}
}
