package runtime

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestNamedProvider: a session whose provider is one of the server's own goes on after a kill of the server without a
// client, and its interrupted turn ends for a returning reader. No secret of the provider is on the server's disk.
func TestNamedProvider(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.Rule{When: harness.WhenUser("wait"), WaitFor: "never", Reply: harness.Steps(harness.Say("too late"))})
	own := st.Config().GetProvider()
	text, err := json.Marshal(map[string]any{
		"type": "openai", "wireApi": "completions", "baseUrl": own.GetBaseUrl(), "apiKey": harness.Planted,
		"headers": map[string]string{"X-Key": harness.Planted},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "provider.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	d := harness.NewDaemon(st, "--provider", "ours="+file)
	config := d.Config()
	config.Provider = nil
	create := func(ref string, c *cliv1.SessionConfig) (string, error) {
		r, err := d.Client.Sessions().CreateSession(d.Ctx, &bridgev1.CreateSessionRequest{Config: c, ProviderRef: ref})
		return r.GetSession().GetSessionId(), err
	}
	_, err = create("theirs", config)
	harness.WantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	_, err = create("ours", d.Config())
	harness.WantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	made, err := d.Client.CreateSession(d.Ctx, copilot.SessionOptions{Config: config, ProviderRef: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	id := made.ID()
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
	d.SayTo(id, "hello")
	d.Written(id)
	sent, err := d.Client.Sessions().Send(d.Ctx,
		&bridgev1.SendRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: "wait"}})
	if err != nil {
		t.Fatal(err)
	}
	d.After(id, sent.GetPosition(), "assistant.turn_start")
	_, at := d.Durable(id)

	d.Crash()
	if found := harness.SecretsIn(t, filepath.Join(d.Root, "data"), harness.Planted); found != nil {
		t.Errorf("secrets are in %v", found)
	}
	if end := turnEnd(d, id, at[len(at)-1]); end.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		t.Errorf("the turn that was cut off ended as %v", end)
	}
	d.SayTo(id, "and on") // without credentials being provided
	if key := d.LastModelRequest().Header.Get("X-Key"); key != harness.Planted {
		t.Errorf("the model is asked with key %q", key)
	}
}

// turnEnd reads the session's frames after a position up to the end of a turn.
func turnEnd(d *harness.Daemon, id string, after *bridgev1.Position) *bridgev1.TurnOutcome {
	d.T.Helper()
	stream, err := d.Client.EventStreams().Subscribe(d.Ctx,
		&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: id, After: after}}})
	if err != nil {
		d.T.Fatal(err)
	}
	for {
		f, err := stream.Recv()
		if err != nil {
			d.T.Fatalf("the stream ended before the turn: %v", err)
		}
		if end := f.GetTurnEnded(); end != nil {
			return end.GetOutcome()
		}
	}
}
