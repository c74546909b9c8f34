package offlinemodel

import (
	"encoding/json"
	"net/http"
)

// capturedRequest is a request as GET /_offline/requests shows it.
type capturedRequest struct {
	Request

	Tools []string        `json:"tools,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// control answers the endpoint's own paths, for tests that are not in Go.
func (s *Scope) control(w http.ResponseWriter, r *http.Request, path string) {
	switch {
	case path == "requests" && r.Method == http.MethodGet:
		s.showRequests(w, r.URL.Query().Get("body") == "true")
	case path == "requests" && r.Method == http.MethodDelete:
		s.Forget()
		w.WriteHeader(http.StatusNoContent)
	case path == "release" && r.Method == http.MethodPost && r.URL.Query().Get("gate") != "":
		s.Release(r.URL.Query().Get("gate"))
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "want GET or DELETE requests, or POST release?gate=NAME", http.StatusNotFound)
	}
}

// showRequests lists the captured requests. Bodies are long and mostly repeat
// what the parsed members say, so they come only when asked for.
func (s *Scope) showRequests(w http.ResponseWriter, bodies bool) {
	shown := []capturedRequest{}
	for _, r := range s.Requests() {
		c := capturedRequest{Request: r, Tools: r.ToolNames()}
		if bodies && len(r.Body) > 0 {
			c.Body = r.Body
			if !json.Valid(r.Body) {
				c.Body = json.RawMessage(quote(string(r.Body)))
			}
		}
		shown = append(shown, c)
	}
	w.Header().Set("content-type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	// An error here means that the client is gone.
	_ = encoder.Encode(map[string]any{"requests": shown})
}
