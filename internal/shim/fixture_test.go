package shim

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// patience is how long anything may take before a test gives up.
const patience = 30 * time.Second

// fixture is a shim in front of a bridge on a fake CLI, and the fake CLI itself.
type fixture struct {
	t      testing.TB
	cli    *fakecli.CLI
	server *Server
	app    *app.App
	config app.Config
	// cut breaks every connection to the bridge.
	cut func()
	// received, if set, is called when the fake CLI has received a request, before its answer.
	received atomic.Pointer[func(method string)]

	callsMu sync.Mutex
	calls   map[string]int // the unary calls of the bridge, by rpc
}

// Write implements io.Writer for the fake CLI's log.
func (r *fixture) Write(line []byte) (int, error) {
	var e fakecli.Entry
	if f := r.received.Load(); f != nil && json.Unmarshal(line, &e) == nil && e.Kind == fakecli.EntryReceived {
		(*f)(e.Type)
	}
	return len(line), nil
}

// count counts a unary call.
func (r *fixture) count(ctx context.Context, rpc string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	r.callsMu.Lock()
	r.calls[rpc]++
	r.callsMu.Unlock()
	return invoke(ctx, rpc, req, reply, cc, opts...)
}

// called returns how often an rpc was called.
func (r *fixture) called(rpc string) int {
	r.callsMu.Lock()
	defer r.callsMu.Unlock()
	return r.calls[rpc]
}

// sole has the fixture's bridge serve its program alone.
func sole(c *app.Config) { c.SingleClient = true }

// newFixture starts everything.
func newFixture(t testing.TB, script fakecli.Script, change ...func(*Config)) *fixture {
	t.Helper()
	return newFixtureWith(t, script, func(*app.Config) {}, change...)
}

// newFixtureWith is newFixture with a bridge of another kind.
func newFixtureWith(t testing.TB, script fakecli.Script, kind func(*app.Config), change ...func(*Config)) *fixture {
	t.Helper()
	r := &fixture{t: t, calls: map[string]int{}}
	r.cli = fakecli.New(fakecli.Options{Script: script, Oracle: r})
	t.Cleanup(r.cli.Close)
	dir, err := os.MkdirTemp("", "cg") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := app.Config{
		Listen: []string{"unix:" + filepath.Join(dir, "s")}, Raw: true, Internal: true, DrainGrace: time.Second,
		ProfileFields: tenancy.ProfileFields(),
	}
	kind(&c)
	var hosts *Hosts
	options := []app.Option{}
	if c.SingleClient {
		hosts = NewHosts()
		options = append(options, app.WithHostCallbacks(hosts))
	}
	options = append(options, app.WithRunner(runtime.InProcess(
		func(context.Context, runtime.Spec) (io.ReadWriteCloser, error) { return r.cli.Connect(), nil })))
	a, err := app.New(t.Context(), c, options...)
	if err != nil {
		t.Fatal(err)
	}
	r.app, r.config = a, c
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var mu sync.Mutex
	var links []net.Conn
	dialer := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		link, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "s"))
		mu.Lock()
		defer mu.Unlock()
		links = append(links, link)
		return link, err
	})
	r.cut = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, link := range links {
			_ = link.Close()
		}
		links = nil
	}
	conn, err := grpc.NewClient("passthrough:///bridge", dialer, grpc.WithUnaryInterceptor(r.count),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	config := Config{Bridge: conn, Hosts: hosts}
	for _, f := range change {
		f(&config)
	}
	if r.server, err = New(config); err != nil {
		t.Fatal(err)
	}
	return r
}

// program is a program of the CLI.
type program struct {
	t    testing.TB
	conn *rpcconn.Conn
	end  func()

	mu     sync.Mutex
	heard  []string // events by type, notifications by method, replies as "reply to METHOD"
	host   []string // notifications to the host
	told   []string // other notifications, each "METHOD PARAMS"
	change chan struct{}
	// answer answers requests; on receives events.
	answer func(method string, params json.RawMessage) (json.RawMessage, error)
	on     func(kind string, data json.RawMessage)
}

// connect connects a program to the shim, or directly to the CLI.
func (r *fixture) connect(direct bool) *program {
	p := &program{t: r.t, change: make(chan struct{})}
	var rwc io.ReadWriteCloser
	served := make(chan struct{})
	if direct {
		rwc = r.cli.Connect()
		close(served)
	} else {
		ours, theirs := net.Pipe()
		rwc = ours
		go func() {
			defer close(served)
			if err := r.server.Serve(context.Background(), theirs, r.server.config.Token == ""); err != nil {
				r.t.Errorf("serve: %v", err)
			}
		}()
	}
	p.conn = rpcconn.New(rwc, rpcconn.Options{
		Event: p.event, Notification: func(method string, params []byte) {
			p.mu.Lock()
			if method == hostEvent {
				p.host = append(p.host, string(params))
			} else {
				p.told = append(p.told, method+" "+string(params))
			}
			p.mu.Unlock()
			p.hear(method)
			if method == "session.lifecycle" && strings.Contains(string(params), "session.deleted") {
				p.hear("session.deleted")
			}
		},
		Request: func(_ context.Context, q *rpcconn.Request) (json.RawMessage, error) {
			return p.answer(q.Method, q.Params)
		},
	})
	p.end = func() {
		_ = p.conn.Close()
		p.conn.Wait()
		<-served
	}
	r.t.Cleanup(p.end)
	return p
}

func (p *program) hear(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = append(p.heard, what)
	close(p.change)
	p.change = make(chan struct{})
}

func (p *program) event(body []byte) {
	var m struct {
		Params struct {
			Event struct {
				Type string
				Data json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(body, &m); err != nil {
		p.t.Errorf("event: %v", err)
	}
	if p.on != nil {
		go p.on(m.Params.Event.Type, m.Params.Event.Data)
	}
	p.hear(m.Params.Event.Type)
}

// call makes a call and returns its result, or its error as JSON.
func (p *program) call(method, params string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	result, err := p.conn.Call(ctx, method, []byte(params), rpcconn.OnReply(func() { p.hear("reply to " + method) }))
	if rpc, ok := err.(*rpcconn.Error); ok {
		text, _ := json.Marshal(rpc)
		return string(text)
	}
	if err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
	return string(result)
}

// await waits until something was heard n times.
func (p *program) await(what string, n int) {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		p.mu.Lock()
		heard, change := slices.Clone(p.heard), p.change
		p.mu.Unlock()
		count := 0
		for _, h := range heard {
			if h == what {
				count++
			}
		}
		if count >= n {
			return
		}
		select {
		case <-change:
		case <-timeout:
			p.t.Fatalf("%q not heard %d times in %q", what, n, heard)
		}
	}
}

// said returns what was heard but for some.
func (p *program) said(without ...string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.heard), func(s string) bool { return slices.Contains(without, s) })
}
