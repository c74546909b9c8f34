package passthrough

import (
	"log/slog"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/climethods"
)

// The CLI's own methods refuse messages that the CLI would drop, as the bridge's do.
func TestComplete(t *testing.T) {
	t.Parallel()
	codec := wire.New(slog.New(slog.DiscardHandler))
	picture := func(mimeType string) *cliv1.SessionToolsServiceHandlePendingToolCallRequest {
		return &cliv1.SessionToolsServiceHandlePendingToolCallRequest{
			SessionId: "s", RequestId: "r", Result: &cliv1.ExternalToolResult{Variant: &cliv1.ExternalToolResult_TextResultForLlm{
				TextResultForLlm: &cliv1.ExternalToolTextResultForLlm{TextResultForLlm: "a picture", BinaryResultsForLlm: []*cliv1.ExternalToolTextResultForLlmBinaryResultsForLlm{
					{Data: []byte("x"), MimeType: mimeType, BinaryType: 1},
				}},
			}},
		}
	}
	for name, test := range map[string]struct {
		method string
		in     proto.Message
		field  string
	}{
		"a picture":                     {"session.tools.handlePendingToolCall", picture("image/png"), ""},
		"a picture without a MIME type": {"session.tools.handlePendingToolCall", picture(""), "result.text_result_for_llm.binary_results_for_llm[0].mime_type"},
	} {
		request, err := proto.Marshal(test.in)
		if err != nil {
			t.Fatal(err)
		}
		err = complete(codec, test.in.ProtoReflect().Descriptor(), request, dropping[test.method])
		f, refused := fields.AsFault(err)
		if refused != (test.field != "") || refused && (f.Field != test.field || f.Reason != fault.AnswerInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each method of the list is one that the CLI has.
func TestDroppingMethodsExist(t *testing.T) {
	t.Parallel()
	known := climethods.All()
	for method := range dropping {
		if known[method] == nil {
			t.Errorf("there is no method %s", method)
		}
	}
}
