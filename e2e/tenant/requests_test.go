package tenant

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// sizeOf is what the files below a folder have.
func sizeOf(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		n += info.Size()
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return n
}

// However many reads with request ids a tenant makes, they are made, write nothing to disk,
// and take nothing from what another tenant's writes are remembered by.
func TestReadsWithARequestID(t *testing.T) {
	t.Parallel()
	r := newTenants(t, harness.Echo, "")
	acme, rival := r.as("acme"), r.as("rival")
	r.create(rival, "s", nil)
	send := func(id string) string {
		out, err := bridgev1.NewSessionServiceClient(rival).Send(r.Ctx,
			&bridgev1.SendRequest{SessionId: "s", RequestId: id, Prompt: &bridgev1.Prompt{Text: "once"}})
		if err != nil {
			t.Fatal(err)
		}
		return out.GetMessageId()
	}
	first := send("r1")
	r.create(acme, "s", nil)
	log := filepath.Join(r.data, "requests")
	before := sizeOf(t, log)
	for i := range 200 {
		ctx := metadata.AppendToOutgoingContext(r.Ctx, "copilot-request-id", fmt.Sprint("read", i%100))
		text := fmt.Sprint("message ", i) // another one under the id that came before
		out, err := cliv1.NewServerServiceClient(acme).Ping(ctx, &cliv1.ServerServicePingRequest{Message: &text})
		if err != nil || out.GetMessage() != "pong: "+text {
			t.Fatalf("read %d: %v, %v", i, out, err)
		}
		if _, err := cliv1.NewToolsServiceClient(acme).List(ctx, &cliv1.ToolsServiceListRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if after := sizeOf(t, log); after != before {
		t.Errorf("400 reads made the log of requests %d bytes longer", after-before)
	}
	if again := send("r1"); again != first {
		t.Errorf("the message %s was sent again as %s", first, again)
	}
	// The tenants share no ids.
	out, err := bridgev1.NewSessionServiceClient(acme).Send(r.Ctx,
		&bridgev1.SendRequest{SessionId: "s", RequestId: "r1", Prompt: &bridgev1.Prompt{Text: "once"}})
	if err != nil || out.GetMessageId() == first {
		t.Errorf("another tenant's request with the same id: %v, %v", out, err)
	}
}
