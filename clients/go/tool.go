package copilot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/schema"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Tool is something the agent can call and this program carries out. [NewTool] makes
// one from a function; where the schema is only known at run time, fill it in by hand.
type Tool struct {
	// The tool's definition for the agent. The name matches ^[a-zA-Z0-9_-]+$.
	Definition *cliv1.ToolDefinition
	// Executes the tool. Nil: the tool is only declared, and its calls wait for
	// [Session.Resolve]. Only tools of [NewTool] check the arguments before the call.
	Handler ToolHandler
	// The tool belongs to the session and not to the participant: it stays when the
	// participant leaves. It is declared where the session is created or resumed; a
	// participant that joins only offers to carry it out. Each participant that has a
	// handler carries out each call, and the first answer counts.
	OwnedBySession bool

	err error
}

// ToolHandler executes a tool. args is the agent's JSON object. The result reaches the
// agent as follows:
//
//   - a string as it is;
//   - a *[ToolResult] as the whole result, which may be a failure;
//   - nil, a nil *ToolResult and [NoResult] as the text "Done.";
//   - anything else as JSON; a value that JSON cannot hold is a failure;
//   - a [*ToolError] as a failure with its text;
//   - another error, or a panic, as the failure "The tool failed."; the error's text goes
//     into the session's record and the log only;
//   - [ErrAbstain] not at all: other participants may execute the tool.
//
// ctx ends when the answer is no longer wanted: with a [*WithdrawnError] as its cause when
// the turn was aborted or another participant answered, or with the cause of [Session.Err]
// when the participation is over. [CallFrom] returns the call.
type ToolHandler func(ctx context.Context, args json.RawMessage) (any, error)

// ToolResult is the whole result of a tool: text, kind of result, files, telemetry.
type ToolResult = cliv1.ExternalToolTextResultForLlm

// ToolError is the error of a tool whose text the model reads. The text of any other error it does not.
type ToolError struct {
	// The text for the model.
	Text string
}

// Error is the text.
func (e *ToolError) Error() string { return e.Text }

// Failure is a result that tells the agent that the tool failed, and how.
func Failure(text string) *ToolResult {
	return &ToolResult{TextResultForLlm: text, ResultType: proto.String("failure"), Error: proto.String(text)}
}

// Rejected is a result that tells the agent that the user rejected the tool's action, and
// why.
func Rejected(text string) *ToolResult {
	return &ToolResult{TextResultForLlm: text, ResultType: proto.String("rejected")}
}

// Denied is a result that tells the agent that the tool's action is not permitted, and why.
func Denied(text string) *ToolResult {
	return &ToolResult{TextResultForLlm: text, ResultType: proto.String("denied")}
}

// The types of binary results, whose names in cliv1 are longer than a line.
const (
	binaryImage    cliv1.ExternalToolTextResultForLlmBinaryResultsForLlmType = 1
	binaryResource cliv1.ExternalToolTextResultForLlmBinaryResultsForLlmType = 2
)

// Binary is a result of a text and a file; an image where the MIME type says so.
func Binary(data []byte, mimeType, text string) *ToolResult {
	kind := binaryResource
	if strings.HasPrefix(mimeType, "image/") {
		kind = binaryImage
	}
	return &ToolResult{
		TextResultForLlm: text, ResultType: proto.String("success"),
		BinaryResultsForLlm: []*cliv1.ExternalToolTextResultForLlmBinaryResultsForLlm{
			{BinaryType: kind, Data: data, MimeType: mimeType},
		},
	}
}

// NoResult is the result of a tool that has nothing to say. The agent reads "Done.": the
// CLI would take an answer without a result for a failure.
type NoResult struct{}

// ErrAbstain is what a handler returns to say "not me": other participants may still
// answer, and nothing is sent to the agent in this one's name.
var ErrAbstain = errors.New("copilot: abstain")

// ToolOption changes a tool that [NewTool] makes.
type ToolOption func(*Tool)

// WithParameters gives the JSON Schema of the arguments in place of the derived one.
func WithParameters(schema json.RawMessage) ToolOption {
	return func(t *Tool) { t.Definition.ParametersJson = proto.String(string(schema)) }
}

// SkipPermission lets the agent call the tool without asking for leave.
func SkipPermission() ToolOption {
	return func(t *Tool) { t.Definition.SkipPermission = proto.Bool(true) }
}

// OverridesBuiltIn lets the tool take the place of a built-in one of the same name.
func OverridesBuiltIn() ToolOption {
	return func(t *Tool) { t.Definition.OverridesBuiltInTool = proto.Bool(true) }
}

// OwnedBySession sets [Tool.OwnedBySession].
func OwnedBySession() ToolOption { return func(t *Tool) { t.OwnedBySession = true } }

// WithDefinition changes other fields of the tool's definition.
func WithDefinition(change func(*cliv1.ToolDefinition)) ToolOption {
	return func(t *Tool) { change(t.Definition) }
}

// NewTool makes a tool from a function. The JSON Schema of its arguments is derived from
// Args, which must encode to a JSON object: a struct, or a map with string keys. Names
// come from `json` tags, or else from the fields with a lower-case beginning: MaxDays is
// maxDays. Descriptions come from `jsonschema` tags, and fields with omitempty or
// omitzero are optional. Arguments that do not fit are refused before fn
// is called, in words from which the agent can mend them.
//
// Result is treated as [ToolHandler] says. A type without a schema makes
// CreateSession, ResumeSession or JoinSession fail.
func NewTool[Args, Result any](
	name, description string, fn func(context.Context, Args) (Result, error), opts ...ToolOption,
) Tool {
	t := Tool{Definition: &cliv1.ToolDefinition{Name: name, Description: description}}
	for _, opt := range opts {
		opt(&t)
	}
	check, err := schema.Check[Args](t.Definition)
	if err != nil {
		t.err = fmt.Errorf("copilot: tool %q: %w", name, err)
		return t
	}
	t.Handler = func(ctx context.Context, raw json.RawMessage) (any, error) {
		var args Args
		if err := check(raw, &args); err != nil {
			return Failure(fmt.Sprintf("The arguments do not fit: %v", err)), nil
		}
		return fn(ctx, args)
	}
	return t
}

// toolAnswer says what a tool's handler returned in the API's terms.
func toolAnswer(result any) (*bridgev1.ToolAnswer, error) {
	switch r := result.(type) {
	case nil, NoResult, *NoResult:
		return done(), nil
	case string:
		return &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: strings.ToValidUTF8(r, "\uFFFD")}}, nil
	case *ToolResult:
		if r == nil {
			return done(), nil
		}
		return &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Result{Result: r}}, nil
	default:
		text, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("copilot: encode the tool's result: %w", err)
		}
		return &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: string(text)}}, nil
	}
}

func done() *bridgev1.ToolAnswer {
	return &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: "Done."}}
}

// toolFailed is the answer of a tool that failed for a reason that is not for the model, but for the session's record.
func toolFailed(reason string) *bridgev1.Answer {
	failed := Failure("The tool failed.")
	failed.Error = proto.String(strings.ToValidUTF8(reason, "\uFFFD"))
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{
		Outcome: &bridgev1.ToolAnswer_Result{Result: failed},
	}}}
}
