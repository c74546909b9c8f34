package session

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

// dawdler is a runtime that replies to one method when it is told to, if it is still asked then.
type dawdler struct {
	puppet
	method string
	reply  chan struct{}
}

func (p *dawdler) Call(ctx context.Context, method string, params []byte, opts ...rpcconn.CallOption) (json.RawMessage, error) {
	result, err := p.puppet.Call(ctx, method, params, opts...)
	if method != p.method {
		return result, err
	}
	select {
	case <-p.reply:
		return result, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestCallerGoes: what a caller has asked of the CLI is completed without the caller, and before anything else is asked.
func TestCallerGoes(t *testing.T) {
	t.Parallel()
	load := func(ctx context.Context, s *Session) error { _, err := s.loader.Load(ctx); return err }
	for name, test := range map[string]struct {
		method string
		state  State // before
		do     func(ctx context.Context, s *Session) error
		after  State
		calls  []string // those that matter
	}{
		"load": {"session.resume", Unloaded, load, Loaded, []string{"session.resume"}},
		"create": {"session.create", Creating, func(ctx context.Context, s *Session) error {
			_, err := s.loader.Create(ctx, Opening{Exact: true})
			return err
		}, Deleted, []string{"session.create", "session.destroy"}},
		"disconnect": {"session.destroy", Loaded, func(ctx context.Context, s *Session) error {
			_, err := s.loader.Disconnect(ctx, true)
			return err
		}, Disconnected, []string{"session.destroy"}},
		"shutdown": {"session.shutdown", Loaded, func(ctx context.Context, s *Session) error {
			_, _, err := s.loader.Shutdown(ctx, nil)
			return err
		}, Unloaded, []string{"session.shutdown", "session.destroy"}},
		"delete": {"session.delete", Loaded, func(ctx context.Context, s *Session) error {
			return s.loader.Delete(ctx, false)
		}, Deleted, []string{"session.delete"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := &dawdler{method: test.method, reply: make(chan struct{})}
				s := onStock(t, &stock{rt: p})
				if s.loader.state = test.state; test.state == Loaded {
					s.loader.runtime = p
				}
				ctx, cancel := context.WithCancel(t.Context())
				go func() { _ = test.do(ctx, s) }()
				synctest.Wait()
				cancel()
				synctest.Wait()
				if len(s.loader.lifecycle) == 0 || len(p.made()) != 1 {
					t.Fatalf("the session is free, and the CLI works on %v", p.made())
				}
				time.Sleep(linger / 2)
				close(p.reply)
				synctest.Wait()
				if state, calls := s.loader.State(), p.made(); state != test.after || !slices.Equal(calls, test.calls) {
					t.Errorf("the session is %v after %v, want %v after %v", state, calls, test.after, test.calls)
				}
			})
		})
	}
}

// made returns the calls that change where the session is.
func (p *dawdler) made() (calls []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		switch c {
		case "session.create", "session.resume", "session.destroy", "session.shutdown", "session.delete":
			calls = append(calls, c)
		}
	}
	return calls
}

// TestLoadOfNobody: a load whose caller has gone ends with the host, or with its time.
func TestLoadOfNobody(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(stop func()){
		"host": func(stop func()) { stop() },
		"time": func(func()) { time.Sleep(linger) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := onStock(t, &stock{rt: &dawdler{method: "session.resume"}})
				host := s.host.(*stock)
				var stop context.CancelFunc
				host.ctx, stop = context.WithCancel(t.Context())
				defer stop()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { _, err := s.loader.Load(ctx); ended <- err }()
				synctest.Wait()
				cancel()
				end(stop)
				synctest.Wait()
				select {
				case err := <-ended:
					wantReason(t, err, fault.Cancelled)
				default:
					t.Fatal("the load goes on")
				}
			})
		})
	}
}
