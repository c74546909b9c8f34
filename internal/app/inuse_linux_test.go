package app

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A server that finds its port, socket or data directory in use says which process has it, and what to do.
func TestInUse(t *testing.T) {
	t.Parallel()
	socket := "unix:" + filepath.Join(shortDir(t), "s")
	first := Config{Listen: []string{socket, "127.0.0.1:0"}, DataDir: t.TempDir()}
	a, err := New(t.Context(), first, WithRunner(fake(t, fakecli.Script{})))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	port := a.Targets()[1]
	free := []string{"unix:" + filepath.Join(shortDir(t), "s")}
	for name, tc := range map[string]struct {
		config Config
		want   string
	}{
		"a port": {Config{Listen: []string{port}},
			"address already in use; this process has the port: stop it, or choose another one with --listen"},
		"a port for browsers": {Config{Listen: free, WebListen: port}, "choose another one with --web-listen"},
		"a port of the admin listener": {Config{Listen: free, AdminListen: port, AdminToken: "0123456789abcdef"},
			"choose another one with --admin-listen"},
		"a socket": {Config{Listen: []string{socket}},
			"; this process listens there: use that server, stop it, or choose another socket with --listen"},
		"a data directory": {Config{Listen: free, DataDir: first.DataDir}, `data_dir: another server uses the data ` +
			`directory "` + first.DataDir + `"; stop this process, or choose another directory with --data-dir`},
		"a long path": {Config{Listen: []string{"unix:" + filepath.Join(shortDir(t), strings.Repeat("x", 120))}},
			"bytes is too long for a socket: choose a shorter one with --listen"},
		"an address of others": {Config{Listen: free, AdminListen: "192.0.2.1:0", AdminToken: "0123456789abcdef",
			AdminWide: true}, "this machine does not have the address: choose one of its own with --admin-listen"},
	} {
		second, err := New(t.Context(), tc.config, WithRunner(fake(t, fakecli.Script{})))
		if err == nil {
			_ = second.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// Doctor says of each port whether it is free, and which process has it else.
func TestDoctorTellsOfPorts(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().String()
	c := Config{Listen: []string{"127.0.0.1:0", port}, AdminListen: "192.0.2.1:0"}
	found := c.addressFindings(t.Context())
	for address, want := range map[string]runtime.Finding{
		"127.0.0.1:0": {Level: runtime.LevelOK, Text: "free"},
		port: {Level: runtime.LevelWarning, Text: "address already in use", // by the same program, perhaps the same server
			Remedy: "this process has the port: stop it, or choose another one with --listen"},
		"192.0.2.1:0": {Level: runtime.LevelError, Text: "cannot assign requested address",
			Remedy: "this machine does not have the address: choose one of its own with --admin-listen"},
	} {
		f := findingOf(found, "port "+address)
		if f.Level != want.Level || !strings.Contains(f.Text, want.Text) || f.Remedy != want.Remedy {
			t.Errorf("%s: doctor says %+v, want %+v", address, f, want)
		}
	}
}
