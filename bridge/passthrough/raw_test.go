package passthrough_test

import (
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/climethods"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// nested is an object of so many levels.
func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
}

// A tool whose schema the CLI would not read is refused, with the field, and the CLI does not hear
// of it: it drops what is nested too deeply, and never answers.
func TestDeepToolsAreRefused(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	r.Create("s")
	tools := func(levels int) []*cliv1.ToolDefinition {
		schema := `{"type":"object","default":` + nested(levels-1) + "}"
		return []*cliv1.ToolDefinition{
			{Name: "flat", Description: "d"}, {Name: "deep", Description: "d", ParametersJson: proto.String(schema)},
		}
	}
	set := climethods.All()["session.tools.set"]
	call := func(levels int) error {
		request, err := proto.Marshal(&cliv1.SessionToolsServiceSetRequest{SessionId: "s", Tools: tools(levels)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.CLI.CallCLI(t.Context(), set, request, false, "", nil)
		return err
	}
	if err := call(90); err != nil {
		t.Errorf("90 levels: %v", err)
	}
	before := len(r.FakeCLI().Log())
	bridgetest.WantFault(t, "500 levels", call(500), fault.InvalidField, "tools[1].parameters_json")
	_, err := r.Sessions.CreateSession(t.Context(), &bridgev1.CreateSessionRequest{Config: &cliv1.SessionConfig{Tools: tools(500)}})
	bridgetest.WantFault(t, "a session with them", err, fault.InvalidField, "config.tools[1].parameters_json")
	if log := r.FakeCLI().Log(); len(log) != before {
		t.Errorf("the CLI has heard %v", log[before:])
	}
}

// No request of copilot.cli.v1 takes JSON that the CLI would not read.
func TestEveryRequestHasADepth(t *testing.T) {
	t.Parallel()
	codec := wire.New(slog.New(slog.DiscardHandler))
	seen := 0
	for name, method := range climethods.All() {
		extra := method.Input().Fields().ByName("json_extra")
		if extra == nil {
			continue
		}
		seen++
		for levels, want := range map[int]fault.Reason{wire.MaxRequestDepth - 2: fault.None, wire.MaxRequestDepth: fault.InvalidField, 5000: fault.InvalidField} {
			m := dynamicpb.NewMessage(method.Input())
			m.Set(extra, protoreflect.ValueOfString(`{"someMember":`+nested(levels)+`}`))
			if _, err := codec.ToJSONAs(m, "request", translate.JSONOptions{}); fault.ReasonOf(err) != want {
				t.Errorf("%s with %d levels: %v", name, levels, err)
			}
		}
	}
	if seen < 500 {
		t.Errorf("only %d methods", seen)
	}
}

// RawService does not check fields, but rejects requests that are nested too deeply before it sends them.
func TestDeepRawCallsAreRefused(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{}, func(c *bridgetest.Options) { c.Raw = true })
	invoke := func(levels int) error {
		_, err := r.CLI.Invoke(t.Context(), &bridgev1.InvokeRequest{Method: "ping", ParamsJson: nested(levels)})
		return err
	}
	if err := invoke(rpcconn.CLIMaxDepth - 1); err != nil {
		t.Errorf("as deep as the CLI reads: %v", err)
	}
	if err := invoke(rpcconn.CLIMaxDepth); fault.ReasonOf(err) != fault.InvalidField {
		t.Errorf("one level more: %v", err)
	}
}
