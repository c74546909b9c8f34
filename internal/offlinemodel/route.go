package offlinemodel

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/loopback"
)

const (
	scopePrefix   = "/s/"
	controlPrefix = "/_offline/"
)

// modelPath matches the paths of model requests. Clients put their own prefix
// before them: OpenAI's /v1, Azure's deployments, nothing for GitHub's API.
var modelPath = regexp.MustCompile(
	`^(?:/v1|/openai/v1|/openai/deployments/[^/]+|/openai)?/(chat/completions|responses|messages|models)/?$`)

func apiOf(path string) API {
	found := modelPath.FindStringSubmatch(path)
	switch {
	case found == nil && (strings.HasPrefix(path, "/copilot_internal/") || path == autoSessionPath):
		return APIGitHub
	case found == nil:
		return APIUnknown
	}
	return map[string]API{
		"chat/completions": APICompletions, "responses": APIResponses, "messages": APIAnthropic, "models": APIModels,
	}[found[1]]
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if !fromLoopback(r) {
		http.Error(w, "the offline model accepts only loopback host names", http.StatusForbidden)
		return
	}
	scope, path := s.route(r)
	if scope == nil {
		http.Error(w, "the scope does not exist", http.StatusNotFound)
		return
	}
	if rest, found := strings.CutPrefix(path, controlPrefix); found {
		scope.control(w, r, rest)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.maxBody))
	request := &Request{
		At: time.Now(), Method: r.Method, Path: path, Query: r.URL.RawQuery, API: apiOf(path),
		Header: r.Header.Clone(), Body: body,
	}
	var tooLarge *http.MaxBytesError
	if err != nil && !errors.As(err, &tooLarge) {
		return // the client went away while sending
	}
	a := &answer{scope: scope, request: request, w: w, http: r}
	if tooLarge != nil {
		request.Body = nil
		scope.capture(request)
		a.refuse(http.StatusRequestEntityTooLarge, "the request body is over the limit")
	} else {
		s.dispatch(a)
	}
	s.logger.DebugContext(r.Context(), "offline model request", slog.String("scope", scope.name),
		slog.Int("number", request.Number), slog.String("method", request.Method), slog.String("path", request.Path),
		slog.String("rule", request.Rule), slog.Int("status", request.Status),
		slog.String("outcome", string(request.Outcome)))
	if request.Outcome == OutcomeDropped {
		panic(http.ErrAbortHandler) // breaks the connection off
	}
}

func (s *Server) dispatch(a *answer) {
	r := a.request
	var err error
	if r.IsModelRequest() {
		err = r.decode()
	}
	a.scope.capture(r)
	switch {
	case r.API == APIUnknown:
		a.refuse(http.StatusNotFound, "the offline model does not serve this path")
	case r.API == APIModels && r.Method == http.MethodGet:
		a.json(http.StatusOK, modelList(a.scope.currentScript()))
	case r.API == APIGitHub:
		a.github()
	case !r.IsModelRequest() || r.Method != http.MethodPost:
		a.refuse(http.StatusMethodNotAllowed, "the offline model does not serve this method at this path")
	case err != nil:
		a.refuse(http.StatusBadRequest, err.Error())
	default:
		a.model()
	}
}

// route finds the scope of a request: by its path, or at the root by its token. The token is the scope's name, or the
// token of an account in its script. Not every client can use a path: the CLI has one address of GitHub's API for all
// its sessions, and older ones ignore the path of an Azure base URL.
func (s *Server) route(r *http.Request) (*Scope, string) {
	path := r.URL.Path
	s.mu.Lock()
	defer s.mu.Unlock()
	if rest, found := strings.CutPrefix(path, scopePrefix); found {
		name, rest, _ := strings.Cut(rest, "/")
		return s.scopes[name], "/" + rest
	}
	if token := credential(r.Header); token != "" {
		if scope := s.scopes[token]; scope != nil {
			return scope, path
		}
		for _, scope := range s.scopes {
			if scope.currentScript().GitHub.names(token) {
				return scope, path
			}
		}
	}
	return s.Scope, path
}

// fromLoopback guards against pages in a browser that reach the endpoint by another name or from their origin.
func fromLoopback(r *http.Request) bool {
	if !isLoopbackHost(r.Host) {
		return false
	}
	origin := r.Header.Get("origin")
	if origin == "" {
		return true
	}
	parsed, err := url.Parse(origin)
	return err == nil && isLoopbackHost(parsed.Host)
}

func isLoopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	return loopback.Host(host)
}
