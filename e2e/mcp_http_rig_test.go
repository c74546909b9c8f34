package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// mcpEndpoint is an MCP server over HTTP that wants a header of its callers, and writes
// down what they came with.
type mcpEndpoint struct {
	server *httptest.Server
	// header is what it wants, with the value wanted.
	header, value string
	// challenge is what it says to those who come without.
	challenge string

	mu   sync.Mutex
	came []string
}

// newMCPEndpoint serves the tools of mcpTools on loopback until the test ends.
func newMCPEndpoint(t *testing.T, header, value string) *mcpEndpoint {
	t.Helper()
	e := &mcpEndpoint{header: header, value: value}
	mux := http.NewServeMux()
	e.server = httptest.NewServer(mux)
	t.Cleanup(e.server.Close)
	e.challenge = fmt.Sprintf(`Bearer resource_metadata=%q, scope="tools"`, e.server.URL+"/.well-known/oauth-protected-resource")
	mux.HandleFunc("/mcp", e.serve)
	mux.HandleFunc("/.well-known/oauth-protected-resource", func(w http.ResponseWriter, _ *http.Request) {
		mcpDocument(w, map[string]any{"resource": e.server.URL + "/mcp", "authorization_servers": []string{e.server.URL}})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		mcpDocument(w, map[string]any{
			"issuer": e.server.URL, "authorization_endpoint": e.server.URL + "/authorize", "token_endpoint": e.server.URL + "/token",
			"registration_endpoint": e.server.URL + "/register", "response_types_supported": []string{"code"},
			"code_challenge_methods_supported": []string{"S256"},
		})
	})
	return e
}

func mcpDocument(w http.ResponseWriter, document map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document) // the caller may have gone
}

func (e *mcpEndpoint) serve(w http.ResponseWriter, r *http.Request) {
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

func (e *mcpEndpoint) note(value string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.came = append(e.came, value)
}

// last is what the last caller came with.
func (e *mcpEndpoint) last() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.came) == 0 {
		return "nobody came"
	}
	return e.came[len(e.came)-1]
}
