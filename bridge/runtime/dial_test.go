//go:build unix

package runtime

import (
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// serve accepts connections until the test is over.
func serve(t *testing.T, handle func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { handle(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		tasks.Wait()
	})
	return l.Addr().String()
}

func TestDial(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		server, ours string
		noQuickAck   bool
		reason       fault.Reason
	}{
		"right token":      {server: "s3cret", ours: "s3cret"},
		"plain TCP":        {server: "s3cret", ours: "s3cret", noQuickAck: true},
		"no token at all":  {},
		"wrong token":      {server: "s3cret", ours: "guess", reason: fault.RuntimeAuthFailed},
		"token missing":    {server: "s3cret", reason: fault.RuntimeAuthFailed},
		"token not wanted": {ours: "s3cret", reason: fault.RuntimeAuthFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cli := fakecli.New(fakecli.Options{Token: tc.server})
			t.Cleanup(cli.Close)
			address := serve(t, func(c net.Conn) { cli.Serve(c, true) })
			cfg := Config{Runner: &Dialer{Address: address, Token: tc.ours, NoQuickAck: tc.noQuickAck},
				Logger: testLogger(t)}
			r, err := Start(t.Context(), cfg)
			if fault.ReasonOf(err) != tc.reason {
				t.Fatalf("Start = %v (%s), want %q", err, fault.ReasonOf(err), tc.reason)
			}
			if err != nil {
				return
			}
			if p := r.Info().Peer; p.Owned || p.PID != 0 || p.Address != address || p.Token != "" {
				t.Errorf("Peer = %+v", p)
			}
			stop(t, r)
			ended(t, r, fault.RuntimeStopping)
			told := slices.ContainsFunc(cli.Log(), func(e fakecli.Entry) bool { return e.Type == "runtime.shutdown" })
			if told || isDone(cli.Exited()) {
				t.Error("a server that is not ours was shut down")
			}
		})
	}
}

func TestDialFails(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	l.Close()
	http := serve(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		c.Close()
	})
	for _, address := range []string{free, http, "no port"} {
		_, err := Start(t.Context(), Config{Runner: &Dialer{Address: address}})
		if fault.ReasonOf(err) != fault.RuntimeDialFailed {
			t.Errorf("Start with %q = %v (%s)", address, err, fault.ReasonOf(err))
		}
	}
}

func TestServerGoes(t *testing.T) {
	t.Parallel()
	cli := fakecli.New(fakecli.Options{})
	t.Cleanup(cli.Close)
	address := serve(t, func(c net.Conn) { cli.Serve(c, true) })
	r := start(t, Config{Runner: &Dialer{Address: address}})
	cli.Kill()
	ended(t, r, fault.CLIExited)
}
