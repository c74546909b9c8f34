package offlinemodel

import (
	"encoding/json"
	"net/http"
	"time"
)

// capturedRequest is a request as GET /_offline/requests shows it.
type capturedRequest struct {
	Number    int             `json:"number"`
	Scope     string          `json:"scope,omitempty"`
	At        time.Time       `json:"at"`
	Method    string          `json:"method"`
	Path      string          `json:"path"`
	Query     string          `json:"query,omitempty"`
	API       API             `json:"api"`
	Header    http.Header     `json:"header"`
	Model     string          `json:"model,omitempty"`
	System    string          `json:"system,omitempty"`
	Messages  []Message       `json:"messages,omitempty"`
	Tools     []string        `json:"tools,omitempty"`
	Streaming bool            `json:"streaming"`
	Rule      string          `json:"rule,omitempty"`
	Status    int             `json:"status,omitempty"`
	Outcome   Outcome         `json:"outcome"`
	Body      json.RawMessage `json:"body,omitempty"`
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
		c := capturedRequest{
			Number: r.Number, Scope: r.Scope, At: r.At, Method: r.Method, Path: r.Path, Query: r.Query, API: r.API,
			Header: r.Header, Model: r.Model, System: r.System, Messages: r.Messages, Tools: r.ToolNames(),
			Streaming: r.Streaming, Rule: r.Rule, Status: r.Status, Outcome: r.Outcome,
		}
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
