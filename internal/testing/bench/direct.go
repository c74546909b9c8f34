package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/rawgrpc"
)

// talker is one way to a session: directly or through the bridge.
type talker interface {
	// send says something and returns when the CLI has taken it.
	send(ctx context.Context, prompt string) error
	// idle returns when the turn that send began has ended, with the text of its last
	// session.info event.
	idle(ctx context.Context) (string, error)
	// end ends the session.
	end(ctx context.Context) error
	close() error
}

// direct speaks JSON-RPC with a CLI over its standard input and output: what a caller
// has without the bridge. It has one session at a time.
type direct struct {
	rt      *runtime.Runtime
	dir     string
	client  *copilot.Client // of a relay; else nil
	session string
	info    string
	over    chan string // the text of the last session.info; capacity 1
	failed  chan error  // capacity 1
}

// newDirect starts a CLI with a session.
func newDirect(ctx context.Context, cli string, config map[string]any) (*direct, error) {
	return newDirectOn(ctx, &runtime.Spawner{Locator: clibin.Locator{Explicit: cli, NoInstall: true}}, config)
}

// newRelayed is newDirect with the bytes carried over a gRPC stream by a server that does
// nothing else, or with rawgrpc.KeepMethod also stores them: what no bridge can be faster than.
func (r *run) newRelayed(ctx context.Context, raw *bridge, method string, config map[string]any) (*direct, error) {
	client, err := raw.dial(ctx, false)
	if err != nil {
		return nil, err
	}
	d, err := newDirectOn(ctx, runtime.InProcess(func(ctx context.Context, _ runtime.Spec) (io.ReadWriteCloser, error) {
		return rawgrpc.Dial(ctx, client, method, r.cfg.LoadCLI)
	}), config)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	d.client = client
	return d, nil
}

// newDirectOn is newDirect with a CLI that is had in any way.
func newDirectOn(ctx context.Context, runner runtime.Runner, config map[string]any) (*direct, error) {
	dir, err := os.MkdirTemp("", "copilot-grpc-bench-")
	if err != nil {
		return nil, err
	}
	d := &direct{dir: dir, session: "direct", over: make(chan string, 1), failed: make(chan error, 1)}
	d.rt, err = runtime.Start(ctx, runtime.Config{
		Runner:  runner,
		Profile: runtime.Profile{Home: filepath.Join(dir, "home"), UserHome: dir, Dir: dir},
		RPC:     rpcconn.Options{Event: d.event},
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := d.open(ctx, config); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// open creates a session; with a tool if the configuration names one.
func (d *direct) open(ctx context.Context, config map[string]any) error {
	d.session = fmt.Sprintf("direct-%d", time.Now().UnixNano())
	params := map[string]any{"sessionId": d.session, "streaming": true}
	for k, v := range config {
		params[k] = v
	}
	return d.call(ctx, "session.create", params)
}

func (d *direct) call(ctx context.Context, method string, params any) error {
	text, err := json.Marshal(params)
	if err == nil {
		_, err = d.rt.Conn().Call(ctx, method, text)
	}
	return err
}

// event looks at the type of every event, as any caller has to.
func (d *direct) event(body []byte) {
	frame, err := translate.ScanFrame(body)
	if err != nil {
		return
	}
	switch string(frame.Event.Type) {
	case "session.idle":
		d.over <- d.info
	case "session.info":
		var data struct{ Message string }
		_ = json.Unmarshal(frame.Event.Data, &data) // the message is checked by who needs it
		d.info = data.Message
	case "external_tool.requested":
		var data struct{ RequestID string }
		_ = json.Unmarshal(frame.Event.Data, &data) // an answer without an id is refused
		// The reader must not wait for the reply to the answer.
		go d.answer(data.RequestID)
	}
}

func (d *direct) answer(id string) {
	err := d.call(context.Background(), "session.tools.handlePendingToolCall", map[string]any{
		"sessionId": d.session, "requestId": id, "result": toolResult,
	})
	if err != nil {
		select {
		case d.failed <- err:
		default:
		}
	}
}

func (d *direct) send(ctx context.Context, prompt string) error {
	return d.call(ctx, "session.send", map[string]any{"sessionId": d.session, "prompt": prompt})
}

// sendUnary is send by a unary call to a relay.
func (d *direct) sendUnary(ctx context.Context) error {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":"unary","method":"session.send",`+
		`"params":{"sessionId":%q,"prompt":"hello"}}`, d.session)
	_, err := rawgrpc.Call(ctx, d.client, fmt.Appendf(nil, "Content-Length: %d\r\n\r\n%s", len(body), body))
	return err
}

func (d *direct) idle(ctx context.Context) (string, error) {
	select {
	case info := <-d.over:
		return info, nil
	case err := <-d.failed:
		return "", err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// end ends the session.
func (d *direct) end(ctx context.Context) error {
	return d.call(ctx, "session.destroy", map[string]any{"sessionId": d.session})
}

func (d *direct) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	err := errors.Join(d.rt.Stop(ctx), os.RemoveAll(d.dir))
	if d.client != nil {
		err = errors.Join(err, d.client.Close())
	}
	return err
}
