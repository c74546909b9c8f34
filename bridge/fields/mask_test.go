package fields

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Each field of a configuration can be named in a mask by its own name, and in JSON by its JSON name.
func TestOfPath(t *testing.T) {
	t.Parallel()
	m := (*cliv1.SessionConfig)(nil).ProtoReflect().Descriptor()
	for i := range m.Fields().Len() {
		field := m.Fields().Get(i)
		if got := OfPath(m, string(field.Name())); got != field {
			t.Errorf("%s names %v", field.Name(), got)
		}
		var r bridgev1.ResumeSessionRequest
		if err := protojson.Unmarshal(fmt.Appendf(nil, `{"updateMask":%q}`, field.JSONName()), &r); err != nil {
			t.Errorf("%s: %v", field.JSONName(), err)
			continue
		}
		if got := OfPath(m, r.GetUpdateMask().GetPaths()[0]); got != field {
			t.Errorf("%s in JSON names %v", field.JSONName(), got)
		}
	}
	for _, path := range []string{"", "none", "mcpservers", "mcpServers", "provider.type", "MCP_SERVERS"} {
		if got := OfPath(m, path); got != nil {
			t.Errorf("%q names %v", path, got)
		}
	}
}
