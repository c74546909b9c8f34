package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestNamedProvider: a session whose provider is one of the server's own goes on after a
// kill of the server by itself, and its turn that was cut off ends for who comes back. No
// secret of the provider is on the server's disk.
func TestNamedProvider(t *testing.T) {
	t.Parallel()
	st := newStage(t, rule{When: whenUser("wait"), WaitFor: "never", Reply: steps(say("too late"))})
	own := st.config().GetProvider()
	text, err := json.Marshal(map[string]any{
		"type": "openai", "wireApi": "completions", "baseUrl": own.GetBaseUrl(), "apiKey": planted, "headers": map[string]string{"X-Key": planted},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "provider.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDaemon(st, "--provider", "ours="+file)
	config := d.config()
	config.Provider = nil
	create := func(ref string, c *cliv1.SessionConfig) (string, error) {
		r, err := d.client.Sessions().CreateSession(d.ctx, &bridgev1.CreateSessionRequest{Config: c, ProviderRef: ref})
		return r.GetSession().GetSessionId(), err
	}
	_, err = create("theirs", config)
	wantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	_, err = create("ours", d.config())
	wantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	made, err := d.client.CreateSession(d.ctx, copilot.SessionOptions{Config: config, ProviderRef: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	id := made.ID()
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
	d.sayTo(id, "hello")
	d.written(id)
	sent, err := d.client.Sessions().Send(d.ctx, &bridgev1.SendRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: "wait"}})
	if err != nil {
		t.Fatal(err)
	}
	d.after(id, sent.GetPosition(), "assistant.turn_start")
	_, at := d.durable(id)

	d.crash()
	if found := secretsIn(t, filepath.Join(d.root, "data"), planted); found != nil {
		t.Errorf("secrets are in %v", found)
	}
	if end := d.turnEnd(id, at[len(at)-1]); end.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		t.Errorf("the turn that was cut off ended as %v", end)
	}
	d.sayTo(id, "and on") // without credentials being provided
	if key := d.lastModelRequest().Header.Get("X-Key"); key != planted {
		t.Errorf("the model is asked with key %q", key)
	}
}

// turnEnd reads the session's frames after a position until a turn's end is told.
func (d *daemon) turnEnd(id string, after *bridgev1.Position) *bridgev1.TurnOutcome {
	d.t.Helper()
	stream, err := d.client.EventStreams().Subscribe(d.ctx, &bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: id, After: after}}})
	if err != nil {
		d.t.Fatal(err)
	}
	for {
		f, err := stream.Recv()
		if err != nil {
			d.t.Fatalf("the stream ended before the turn: %v", err)
		}
		if end := f.GetTurnEnded(); end != nil {
			return end.GetOutcome()
		}
	}
}
