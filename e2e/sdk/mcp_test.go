package sdk

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

// mcpEnv makes the test binary an MCP server over stdio, in place of running tests.
const mcpEnv = "SDK_MCP_SERVER"

// mcpRequest is what an MCP client asks.
type mcpRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string `json:"protocolVersion"`
		Arguments       struct {
			Text string `json:"text"`
		} `json:"arguments"`
		Meta map[string]any `json:"_meta"`
	} `json:"params"`
}

// answer plays a server with one tool, which returns its arguments.
func (r *mcpRequest) answer() map[string]any {
	answer := map[string]any{"jsonrpc": "2.0", "id": r.ID}
	switch r.Method {
	case "initialize":
		answer["result"] = map[string]any{
			"protocolVersion": r.Params.ProtocolVersion, "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]any{"name": "scenarios", "version": "1"},
		}
	case "ping":
		answer["result"] = map[string]any{}
	case "tools/list":
		answer["result"] = map[string]any{"tools": []any{map[string]any{
			"name": "shout", "description": "Says a text aloud.", "inputSchema": map[string]any{
				"type": "object", "properties": map[string]any{"text": map[string]any{"type": "string"}},
			},
		}}}
	case "tools/call":
		text := fmt.Sprintf("%s! (ours: %v)", r.Params.Arguments.Text, r.Params.Meta["ours"])
		answer["result"] = map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
	default:
		answer["error"] = map[string]any{"code": -32601, "message": "no such method"}
	}
	return answer
}

// serveMCP serves until its input ends. It returns false when it is not asked to.
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
		line, err := json.Marshal(req.answer())
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
	return true
}

// startMCP serves the same over HTTP: at /open to all, at /guarded to requests with the token. It returns its address.
func startMCP(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("/open", mcpOverHTTP)
	mux.HandleFunc("/guarded", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer good-token" {
			mcpOverHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate",
			fmt.Sprintf(`Bearer resource_metadata=%q, scope="tools"`,
				server.URL+"/.well-known/oauth-protected-resource"))
		w.WriteHeader(http.StatusUnauthorized)
	})
	mux.HandleFunc("/.well-known/oauth-protected-resource", func(w http.ResponseWriter, _ *http.Request) {
		document(w, map[string]any{"resource": server.URL + "/guarded", "authorization_servers": []string{server.URL}})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		document(w, map[string]any{
			"issuer": server.URL, "authorization_endpoint": server.URL + "/authorize",
			"token_endpoint":        server.URL + "/token",
			"registration_endpoint": server.URL + "/register", "response_types_supported": []string{"code"},
			"code_challenge_methods_supported": []string{"S256"},
		})
	})
	return server.URL
}

func mcpOverHTTP(w http.ResponseWriter, r *http.Request) {
	var req mcpRequest
	switch {
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case json.NewDecoder(r.Body).Decode(&req) != nil:
		w.WriteHeader(http.StatusBadRequest)
	case req.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	default:
		document(w, req.answer())
	}
}

func document(w http.ResponseWriter, content any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(content) // the caller may have gone
}
