package runtime

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// With a key for credentials a session continues after a crash of the server without its caller, and the disk does not
// show them. With another key it needs them again.
func TestSealedCredentials(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	file := filepath.Join(t.TempDir(), "keys")
	write := func(key string) {
		if err := os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString([]byte(key))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("the first key, it has 32 bytes .")
	d := harness.NewDaemon(st, "--sealing-keys", file)
	config := d.Config()
	config.Provider.ApiKey = proto.String(harness.Planted)
	_, err := d.Client.Sessions().CreateSession(d.Ctx, &bridgev1.CreateSessionRequest{SessionId: "s", Config: config})
	if err != nil {
		t.Fatal(err)
	}
	d.SayTo("s", "first")
	d.Crash()
	d.SayTo("s", "second")
	requests := d.Model.ModelRequests()
	if got := requests[len(requests)-1].Header.Get("Authorization"); got != "Bearer "+harness.Planted {
		t.Errorf("after the crash the model request has the key %q", got)
	}
	if found := harness.SecretsIn(t, filepath.Join(d.Root, "data"), harness.Planted); found != nil {
		t.Errorf("the key is readable in %v", found)
	}
	write("a second one, also with 32 bytes")
	d.Crash()
	lacksCredentials(d, "s")
}
