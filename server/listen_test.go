package server_test

import (
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	ok := []server.Service{info{}}
	for name, tc := range map[string]struct {
		config server.Config
		want   string
	}{
		"no address": {server.Config{Services: ok}, "no address"},
		"no service": {server.Config{Listen: []string{"127.0.0.1:0"}}, "no service"},
		"no form": {server.Config{Services: ok, Listen: []string{"somewhere"}},
			"neither unix:PATH nor HOST:PORT"},
		"all interfaces": {server.Config{Services: ok, Listen: []string{":7070"}}, "not on the loopback interface"},
		"any address": {server.Config{Services: ok, Listen: []string{"0.0.0.0:7070"}},
			"not on the loopback interface"},
		"other host": {server.Config{Services: ok, Listen: []string{"192.0.2.1:7070"}},
			"not on the loopback interface"},
		"name": {server.Config{Services: ok, Listen: []string{"example.org:7070"}},
			"not on the loopback interface"},
		"short token": {server.Config{Services: ok, Listen: []string{"127.0.0.1:0"}, Token: "short"},
			"fewer than 16"},
		"negative": {server.Config{Services: ok, Listen: []string{"127.0.0.1:0"}, StopTimeout: -1}, "negative"},
		"second in vain": {server.Config{Services: ok, Listen: []string{"127.0.0.1:0", "unix:/dev/null/x"}},
			"/dev/null"},
		"mixed, one bad": {server.Config{Services: ok, Listen: []string{"unix:x.sock", "[2001:db8::1]:1"}},
			"not on the loopback interface"},
		"port is missing": {server.Config{Services: ok, Listen: []string{"127.0.0.1"}},
			"neither unix:PATH nor HOST:PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := server.New(t.Context(), tc.config)
			if err == nil {
				_ = s.Close()
				t.Fatal("the configuration was accepted")
			}
			if !strings.Contains(err.Error(), tc.want) || tc.config.Token != "" &&
				strings.Contains(err.Error(), tc.config.Token) {
				t.Errorf("error %q", err)
			}
		})
	}
}

// A server that is half built leaves no open port behind.
func TestNewUnwinds(t *testing.T) {
	t.Parallel()
	path := servertest.SocketPath(t)
	_, err := server.New(t.Context(),
		server.Config{Services: []server.Service{info{}}, Listen: []string{"unix:" + path, "unix:/dev/null/x"}})
	if err == nil {
		t.Fatal("listened below /dev/null")
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the first socket is still there: %v", err)
	}
}

func TestCloseWithoutRun(t *testing.T) {
	t.Parallel()
	path := servertest.SocketPath(t)
	s, err := server.New(t.Context(),
		server.Config{Services: []server.Service{info{}}, Listen: []string{"unix:" + path, "localhost:0"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Token()) < 16 {
		t.Errorf("token %q", s.Token())
	}
	if ip := s.Addrs()[1].(*net.TCPAddr).IP; !ip.IsLoopback() {
		t.Errorf("localhost is %s", ip)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestSocketIsForItsUserOnly(t *testing.T) {
	t.Parallel()
	path := servertest.SocketPath(t)
	r := servertest.Start(t, server.Config{Listen: []string{"unix:" + path}}, info{})
	stat, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if stat.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("mode %v", stat.Mode())
	}
	if r.Server.Token() != "" {
		t.Error("a token was made that nobody needs")
	}
}

func TestSocketLeftBehind(t *testing.T) {
	t.Parallel()
	config := func(path string) server.Config {
		return server.Config{Listen: []string{"unix:" + path}, Services: []server.Service{info{}}}
	}
	t.Run("nobody answers", func(t *testing.T) {
		t.Parallel()
		path := servertest.SocketPath(t)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := server.New(t.Context(), config(path))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("somebody answers", func(t *testing.T) {
		t.Parallel()
		path := servertest.SocketPath(t)
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if s, err := server.New(t.Context(), config(path)); err == nil ||
			!strings.Contains(err.Error(), "another server listens") {
			t.Errorf("server %v, error %v", s, err)
		}
		if conn, err := net.Dial("unix", path); err != nil {
			t.Errorf("the other server lost its socket: %v", err)
		} else {
			_ = conn.Close()
		}
	})
	t.Run("no socket", func(t *testing.T) {
		t.Parallel()
		path := servertest.SocketPath(t)
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := server.New(t.Context(), config(path)); err == nil ||
			!strings.Contains(err.Error(), "not a socket") {
			t.Errorf("server %v, error %v", s, err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
			t.Errorf("the file is gone: %q, %v", b, err)
		}
	})
}
