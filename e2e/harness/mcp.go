package harness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// mcpEnv makes the test binary an MCP server over stdio, in place of running tests.
const mcpEnv = "E2E_MCP_SERVER"

// MCPStartsEnv names a file in which each such server writes its process's number.
const MCPStartsEnv = "E2E_MCP_STARTS"

// MCPTools are the tools of the MCP servers.
var MCPTools = []any{
	mcpTool("shout", "Says a text aloud."),
	// ponder asks the client's model before it answers, and tells what that said.
	mcpTool("ponder", "Has a model think about a text."),
	mcpTool("fail", "Fails."),
}

func mcpTool(name, description string) map[string]any {
	return map[string]any{
		"name": name, "description": description,
		"inputSchema": map[string]any{
			"type":       "object",
			"properties": map[string]any{"text": map[string]any{"type": "string"}},
			"required":   []string{"text"},
		},
	}
}

// MCPServer is the configuration of the test binary as an MCP server with all tools.
func MCPServer(t *testing.T) *cliv1.McpSerializableServerConfig {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &cliv1.McpSerializableServerConfig{Variant: &cliv1.McpSerializableServerConfig_Stdio{Stdio: &cliv1.McpServerConfigStdio{
		Command: self, Env: map[string]string{mcpEnv: "1", "E2E_MCP_WORD": "from afar"},
		Tools: &cliv1.StringList{Items: []string{"*"}},
	}}}
}

// serveMCP serves MCPTools until its input ends. It returns false when it is not asked to.
func serveMCP() bool {
	if os.Getenv(mcpEnv) == "" {
		return false
	}
	noteStart()
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	var pondering json.RawMessage // the call that waits for the client's model
	for in.Scan() {
		var req mcpRequest
		switch err := json.Unmarshal(in.Bytes(), &req); {
		case err != nil || req.ID == nil: // notifications need no answer
		case req.Method == "" && pondering != nil:
			mcpSay(mcpText(pondering, "it came to "+string(req.outcome())))
			pondering = nil
		case req.Method == "tools/call" && req.Params.Name == "ponder":
			pondering = req.ID
			mcpSay(map[string]any{
				"jsonrpc": "2.0", "id": "ponder", "method": "sampling/createMessage",
				"params": map[string]any{
					"maxTokens": 100, "messages": []any{map[string]any{
						"role": "user", "content": map[string]any{"type": "text", "text": req.Params.Arguments.Text},
					}},
				},
			})
		default:
			mcpSay(req.answer())
		}
	}
	return true
}

// noteStart notes that the server was started, if a file for that is set.
func noteStart() {
	name := os.Getenv(MCPStartsEnv)
	if name == "" {
		return
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(file, os.Getpid())
	if err := file.Close(); err != nil {
		panic(err)
	}
}

func mcpSay(message map[string]any) {
	line, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

type mcpRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string `json:"protocolVersion"`
		Name            string `json:"name"`
		Arguments       struct {
			Text string `json:"text"`
		} `json:"arguments"`
		Meta json.RawMessage `json:"_meta"`
	} `json:"params"`
	// Where it is an answer.
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// outcome is the result or the error of an answer.
func (r *mcpRequest) outcome() json.RawMessage {
	if r.Result != nil {
		return r.Result
	}
	return r.Error
}

func mcpText(id json.RawMessage, text string) map[string]any {
	return map[string]any{"jsonrpc": "2.0", "id": id, "result": map[string]any{
		"content": []any{map[string]any{"type": "text", "text": text}},
	}}
}

func (r *mcpRequest) answer() map[string]any {
	answer := map[string]any{"jsonrpc": "2.0", "id": r.ID}
	switch r.Method {
	case "initialize":
		answer["result"] = map[string]any{
			"protocolVersion": r.Params.ProtocolVersion,
			"capabilities":    map[string]any{"tools": map[string]any{}},
			"serverInfo":      map[string]any{"name": "e2e", "version": "1"},
		}
	case "ping":
		answer["result"] = map[string]any{}
	case "tools/list":
		answer["result"] = map[string]any{"tools": MCPTools}
	case "tools/call":
		if r.Params.Name == "fail" {
			answer["result"] = map[string]any{"isError": true,
				"content": []any{map[string]any{"type": "text", "text": "it failed"}}}
			break
		}
		// The environment and the metadata show that what the session sets comes here.
		return mcpText(r.ID,
			fmt.Sprintf("%s! (%s) %s", r.Params.Arguments.Text, os.Getenv("E2E_MCP_WORD"), r.Params.Meta))
	default:
		answer["error"] = map[string]any{"code": -32601, "message": "no such method"}
	}
	return answer
}
