package session

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// fakeSatellite is one more connection to the fake CLI.
type fakeSatellite struct{ conn *rpcconn.Conn }

// Satellite implements Runtime.
func (rt *fakeRuntime) Satellite(_ context.Context, participant string, ask Asker) (roster.Satellite, error) {
	return fakeSatellite{rpcconn.New(rt.cli.Connect(), rpcconn.Options{
		Request: func(ctx context.Context, q *rpcconn.Request) (json.RawMessage, error) {
			return ask(ctx, fmt.Sprintf("%s-%d", participant, rt.r.asked.Add(1)), q.Method, q.Params)
		},
	})}, nil
}

func (f fakeSatellite) Call(ctx context.Context, method string, params []byte) (json.RawMessage, error) {
	return f.conn.Call(ctx, method, params)
}

func (f fakeSatellite) Close() {
	_ = f.conn.Close()
	f.conn.Wait()
}
