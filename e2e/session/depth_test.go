package session

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// The CLI drops a request that is nested too deeply, and never answers; the server refuses it. The CLI answers every
// request that the server takes.
func TestDeepSchemas(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{})
	set := func(levels int) error {
		schema := `{"type":"object","x":` + strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels) + "}"
		_, err := cliv1.NewSessionToolsServiceClient(st.Conn()).Set(st.Ctx, &cliv1.SessionToolsServiceSetRequest{
			SessionId: s.ID(),
			Tools:     []*cliv1.ToolDefinition{{Name: "deep", Description: "d", ParametersJson: proto.String(schema)}},
		})
		return err
	}
	deepest := 0
	for levels := range 120 {
		if err := set(levels); status.Code(err) == codes.InvalidArgument {
			break
		} else if err != nil {
			t.Fatalf("%d levels: %v", levels, err)
		}
		deepest = levels
	}
	if deepest < 90 {
		t.Errorf("only %d levels are taken", deepest)
	}
	if err := set(500); status.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), "tools[0].parameters_json") {
		t.Errorf("500 levels: %v", err)
	}
}
