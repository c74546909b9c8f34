package ask

import (
	"cmp"
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// permission takes the request of a permission. A kind that is not known here is shown as the CLI's JSON, so that a
// person never approves what they cannot see.
func (q *Question) permission(req *cliv1.PermissionRequest) {
	switch {
	case req.GetShell() != nil:
		q.shell(req.GetShell())
	case req.GetWrite() != nil:
		q.write(req.GetWrite())
	case req.GetRead() != nil:
		r := req.GetRead()
		q.Title, q.Detail = "Read", cmp.Or(r.GetResolvedPath(), r.GetPath())
		q.note("Purpose", r.GetIntention())
		q.bypass(r.GetRequestSandboxBypass(), r.GetRequestSandboxBypassReason())
	case req.GetUrl() != nil:
		r := req.GetUrl()
		q.Title, q.Detail = "Fetch a URL", r.GetUrl()
		q.note("Redirected from", r.GetRedirectedFrom())
		q.note("Purpose", r.GetIntention())
		q.bypass(r.GetRequestSandboxBypass(), r.GetRequestSandboxBypassReason())
	case req.GetMcp() != nil:
		r := req.GetMcp()
		q.Title = "Use the tool " + r.GetToolName() + " of the MCP server " + r.GetServerName()
		q.Detail = r.GetArgsJson()
	case req.GetCustomTool() != nil:
		r := req.GetCustomTool()
		q.Title, q.Detail = "Use the tool "+r.GetToolName(), r.GetArgsJson()
		q.note("It", r.GetToolDescription())
	case req.GetHook() != nil:
		r := req.GetHook()
		q.Title, q.Detail = "Use the tool "+r.GetToolName()+", about which a hook asks", r.GetToolArgsJson()
		q.note("The hook says", r.GetHookMessage())
	case req.GetMemory() != nil:
		q.Title, q.Detail = "Remember", req.GetMemory().GetFact()
		q.note("Reason", req.GetMemory().GetReason())
	default:
		q.Title, q.Detail = "Permission", requestJSON(req)
	}
}

func (q *Question) shell(r *cliv1.PermissionRequestShell) {
	q.Title, q.Detail = "Run a command", r.GetFullCommandText()
	q.note("In", r.GetResolvedWorkingDirectory())
	q.note("Purpose", r.GetIntention())
	q.note("Warning", r.GetWarning())
	q.bypass(r.GetRequestSandboxBypass(), r.GetRequestSandboxBypassReason())
}

func (q *Question) write(r *cliv1.PermissionRequestWrite) {
	q.Title = "Write to " + cmp.Or(r.GetResolvedPath(), r.GetFileName())
	q.Detail, q.IsDiff = r.GetDiff(), true
	if q.Detail == "" {
		q.Detail, q.IsDiff = r.GetNewFileContents(), false
	}
	q.note("Purpose", r.GetIntention())
	q.bypass(r.GetRequestSandboxBypass(), r.GetRequestSandboxBypassReason())
}

func (q *Question) note(name, text string) {
	if text != "" {
		q.Notes = append(q.Notes, name+": "+text)
	}
}

// bypass warns of a request that leaves the sandbox.
func (q *Question) bypass(asked bool, reason string) {
	if asked {
		q.Notes = slices.Insert(q.Notes, 0, "Warning: this leaves the sandbox. "+reason)
	}
}

func requestJSON(req *cliv1.PermissionRequest) string {
	if text := req.GetUnrecognized(); text != "" {
		return text
	}
	text, err := protojson.Marshal(req)
	if err != nil { // a message that came over gRPC encodes
		return err.Error()
	}
	return jsonOf(json.RawMessage(text))
}
