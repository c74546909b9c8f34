package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// mcpEnv makes the test binary an MCP server over stdio, in place of running tests.
const mcpEnv = "E2E_MCP_SERVER"

// serveMCP serves one tool, "shout", until its input ends. It returns false when it is
// not asked to.
func serveMCP() bool {
	if os.Getenv(mcpEnv) == "" {
		return false
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var req mcpRequest
		if json.Unmarshal(in.Bytes(), &req) != nil || req.ID == nil {
			continue // notifications need no answer
		}
		answer, err := json.Marshal(req.answer())
		if err != nil {
			panic(err)
		}
		fmt.Println(string(answer))
	}
	return true
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
	} `json:"params"`
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
		answer["result"] = map[string]any{"tools": []any{map[string]any{
			"name": "shout", "description": "Says a text aloud.",
			"inputSchema": map[string]any{
				"type":       "object",
				"properties": map[string]any{"text": map[string]any{"type": "string"}},
				"required":   []string{"text"},
			},
		}}}
	case "tools/call":
		// The environment shows that what the session sets comes here.
		text := fmt.Sprintf("%s! (%s)", r.Params.Arguments.Text, os.Getenv("E2E_MCP_WORD"))
		answer["result"] = map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
	default:
		answer["error"] = map[string]any{"code": -32601, "message": "no such method"}
	}
	return answer
}
