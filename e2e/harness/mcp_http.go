package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// MCPEndpoint is an MCP server over HTTP that wants a header of its callers, and writes
// down what they came with.
type MCPEndpoint struct {
	Server *httptest.Server
	// header is what it wants, with the value wanted.
	header, value string
	// challenge is its reply to requests without credentials.
	challenge string

	mu   sync.Mutex
	came []string
}

// NewMCPEndpoint serves the tools of MCPTools on loopback until the test ends.
func NewMCPEndpoint(t *testing.T, header, value string) *MCPEndpoint {
	t.Helper()
	e := &MCPEndpoint{header: header, value: value}
	mux := http.NewServeMux()
	e.Server = httptest.NewServer(mux)
	t.Cleanup(e.Server.Close)
	e.challenge = fmt.Sprintf(`Bearer resource_metadata=%q, scope="tools"`,
		e.Server.URL+"/.well-known/oauth-protected-resource")
	mux.HandleFunc("/mcp", e.serve)
	mux.HandleFunc("/.well-known/oauth-protected-resource", func(w http.ResponseWriter, _ *http.Request) {
		mcpDocument(w,
			map[string]any{"resource": e.Server.URL + "/mcp", "authorization_servers": []string{e.Server.URL}})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		mcpDocument(w, map[string]any{
			"issuer": e.Server.URL, "authorization_endpoint": e.Server.URL + "/authorize",
			"token_endpoint":        e.Server.URL + "/token",
			"registration_endpoint": e.Server.URL + "/register", "response_types_supported": []string{"code"},
			"code_challenge_methods_supported": []string{"S256"},
		})
	})
	return e
}

func mcpDocument(w http.ResponseWriter, document map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document) // the caller may have gone
}

func (e *MCPEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	e.note(r.Header.Get(e.header))
	var req mcpRequest
	switch {
	case r.Header.Get(e.header) != e.value:
		w.Header().Set("WWW-Authenticate", e.challenge)
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case json.NewDecoder(r.Body).Decode(&req) != nil:
		w.WriteHeader(http.StatusBadRequest)
	case req.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	default:
		mcpDocument(w, req.answer())
	}
}

func (e *MCPEndpoint) note(value string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.came = append(e.came, value)
}

// Last is what the last caller came with.
func (e *MCPEndpoint) Last() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.came) == 0 {
		return "nobody came"
	}
	return e.came[len(e.came)-1]
}
