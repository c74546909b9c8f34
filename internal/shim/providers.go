package shim

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// providers are the connections that provide something for the whole process. In the CLI
// it is the process's for good; here each session from then on has it in its profile.
type providers struct {
	files, models *conn
	// requests are the sessions of the model requests that are under way.
	requests map[string]string
	// asking are the callbacks that the providers are being asked, by session and id, each
	// with what asks it again should the participant end that asks it now.
	asking map[[2]string][]func()
}

// once reports whether a participant is to ask its provider for a callback: only the first one of a session does,
// because a file must not be written twice. If that participant ends meanwhile, the others ask again. life is the
// participant's context. After a true result the caller must call over at the end.
func (s *Server) once(life context.Context, session, callback string, again func()) (over func(), mine bool) {
	key := [2]string{session, callback}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.providers.asking == nil {
		s.providers.asking = map[[2]string][]func(){}
	}
	if others, asked := s.providers.asking[key]; asked {
		s.providers.asking[key] = append(others, again)
		return nil, false
	}
	s.providers.asking[key] = nil
	return func() {
		s.mu.Lock()
		others := s.providers.asking[key]
		delete(s.providers.asking, key)
		s.mu.Unlock()
		if life.Err() == nil {
			return
		}
		for _, again := range others { // the first of them is, then
			again()
		}
	}, true
}

// maxModelRequests bounds the model requests that are remembered.
const maxModelRequests = 4096

// provideFiles is sessionFs.setProvider.
func (c *conn) provideFiles(_ context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	fs, err := fileProvider(r.Params)
	if err != nil {
		return nil, err
	}
	fs.Key = c.server.key
	active := c.server.active()
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if active {
		return nil, failure(r.Method, "Cannot set session filesystem provider while sessions are active. Call "+
			"sessionFs.setProvider before creating any sessions.")
	}
	if other := c.server.providers.files; other != nil && other != c {
		return nil, &rpcconn.Error{Code: codeInternal,
			Message: "Another client is already the session filesystem provider."}
	}
	c.server.providers.files, c.server.profile.SessionFs = c, fs
	c.server.counter.typed(methodProvideFiles)
	return succeeded, nil
}

const methodProvideFiles = "sessionFs.setProvider"

// fileProvider reads the parameters of sessionFs.setProvider. The CLI would refuse bad ones at the start of the first
// runtime that has them, so they are refused here, in its words.
func fileProvider(params json.RawMessage) (*bridgev1.SessionFileSystem, error) {
	if len(params) == 0 || params[0] == 'n' {
		params = json.RawMessage(`{}`)
	}
	if err := fileProviderParams.check(params); err != nil {
		return nil, failure(methodProvideFiles, "Invalid sessionFs.setProvider params: "+err.Error())
	}
	if params[0] != '{' {
		return nil, failure(methodProvideFiles, "sessionFs.setProvider requires initialCwd")
	}
	var p struct {
		InitialCwd, SessionStatePath, Conventions string
		Capabilities                              json.RawMessage
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	if !absolute(p.InitialCwd, p.Conventions) {
		return nil, failure(methodProvideFiles, `sessionFs.setProvider requires an initialCwd that is absolute under the "`+
			p.Conventions+`" path convention; got "`+p.InitialCwd+`".`)
	}
	var can struct{ SQLite, Binary bool }
	_ = json.Unmarshal(p.Capabilities, &can) // none, or an array, which means nothing
	fs := &bridgev1.SessionFileSystem{
		InitialDirectory: p.InitialCwd, StatePath: p.SessionStatePath, Sqlite: can.SQLite, Binary: can.Binary,
	}
	if p.Conventions == windowsPaths {
		fs.Conventions = bridgev1.PathConventions_PATH_CONVENTIONS_WINDOWS
	}
	return fs, nil
}

// windowsPaths are the conventions of Windows in sessionFs.setProvider.
const windowsPaths = "windows"

// drivePath is an absolute path on a drive of Windows.
var drivePath = regexp.MustCompile(`^[A-Za-z]:[/\\]`)

// absolute reports whether the CLI takes a path for absolute.
func absolute(path, conventions string) bool {
	if conventions == windowsPaths {
		return strings.HasPrefix(path, "/") || strings.HasPrefix(path, `\`) || drivePath.MatchString(path)
	}
	return strings.HasPrefix(path, "/")
}

// provideModels is llmInference.setProvider.
func (c *conn) provideModels(_ context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	active := c.server.active()
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if active {
		return nil, failure(r.Method, "Cannot set LLM inference provider while sessions are active. Call "+
			"llmInference.setProvider before creating any sessions.")
	}
	if other := c.server.providers.models; other != nil && other != c {
		return nil, &rpcconn.Error{Code: codeInternal, Message: "Another client is already the LLM inference provider."}
	}
	c.server.providers.models, c.server.profile.ModelInference = c, &bridgev1.ModelInference{Key: c.server.key}
	c.server.counter.typed("llmInference.setProvider")
	return succeeded, nil
}

// active reports whether any connection is in a session.
func (s *Server) active() bool {
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	return slices.ContainsFunc(conns, func(c *conn) bool { return c.sessions.active() })
}

// unprovided is the connection's profile without what programs provide.
func (c *conn) unprovided() *bridgev1.RuntimeProfile {
	p := c.profile()
	if p == nil {
		return nil
	}
	p.SessionFs, p.ModelInference = nil, nil
	if proto.Size(p) == 0 {
		return nil
	}
	return p
}

// addProviders adds the providers of the process to the kinds that a participant handles.
func (c *conn) addProviders(start *bridgev1.AttachStart) {
	c.server.mu.Lock()
	fs, mi := c.server.profile.GetSessionFs() != nil, c.server.profile.GetModelInference() != nil
	c.server.mu.Unlock()
	for number := range bridgev1.CallbackKind_name {
		kind := bridgev1.CallbackKind(number)
		name, _ := callback.MethodOf(kind)
		if of := provider(name); of == "sessionFs" && fs || of == "llmInference" && mi {
			start.Handlers.Kinds = append(start.Handlers.Kinds, kind)
		}
	}
}

// providerConn returns the connection to ask: the session's own, or the one that provides for the process.
func (c *conn) providerConn(q question, session string) *conn {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	to := c
	switch provider(q.method) {
	case "sessionFs":
		to = c.server.providers.files
	case "llmInference":
		to = c.server.providers.models
		if start, ok := q.typed.(*cliv1.CallbackLlmInferenceServiceHttpRequestStartRequest); ok {
			if c.server.providers.requests == nil || len(c.server.providers.requests) >= maxModelRequests {
				c.server.providers.requests = map[string]string{}
			}
			c.server.providers.requests[start.GetRequestId()] = session
		}
	}
	if to == nil {
		return c
	}
	return to
}

// respondHead is llmInference.httpResponseStart.
func (c *conn) respondHead(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	var p struct {
		RequestID  string              `json:"requestId"`
		Status     int32               `json:"status"`
		StatusText string              `json:"statusText"`
		Headers    map[string][]string `json:"headers"`
	}
	if c.server.requestSession(about(r.Params).RequestID) == "" {
		return unaccepted, nil // whatever else is said
	}
	if err := json.Unmarshal(r.Params, &p); err != nil {
		return nil, failure("llmInference.httpResponseStart", err.Error())
	}
	head := &bridgev1.ModelResponseHead{Status: p.Status, StatusText: p.StatusText,
		Headers: map[string]*cliv1.StringList{}}
	for name, values := range p.Headers {
		head.Headers[name] = &cliv1.StringList{Items: values}
	}
	c.server.counter.typed("llmInference.httpResponseStart")
	return c.respond(ctx,
		&bridgev1.ModelResponse{RequestId: p.RequestID, Part: &bridgev1.ModelResponse_Head{Head: head}})
}

// respondChunk is llmInference.httpResponseChunk.
func (c *conn) respondChunk(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	var p struct {
		RequestID string `json:"requestId"`
		Data      string `json:"data"`
		Binary    bool   `json:"binary"`
		End       bool   `json:"end"`
		Error     *struct{ Message, Code string }
	}
	if c.server.requestSession(about(r.Params).RequestID) == "" {
		return unaccepted, nil // whatever else is said
	}
	if err := json.Unmarshal(r.Params, &p); err != nil {
		return nil, failure("llmInference.httpResponseChunk", err.Error())
	}
	chunk := &bridgev1.ModelResponseChunk{End: p.End, Data: &bridgev1.ModelResponseChunk_Text{Text: p.Data}}
	if p.Binary {
		bytes, err := base64.StdEncoding.DecodeString(p.Data)
		if err != nil {
			return nil, failure("llmInference.httpResponseChunk", err.Error())
		}
		chunk.Data = &bridgev1.ModelResponseChunk_Binary{Binary: bytes}
	}
	if p.Error != nil {
		chunk.Error = &bridgev1.ModelResponseError{Message: p.Error.Message, Code: p.Error.Code}
	}
	c.server.counter.typed("llmInference.httpResponseChunk")
	return c.respond(ctx,
		&bridgev1.ModelResponse{RequestId: p.RequestID, Part: &bridgev1.ModelResponse_Chunk{Chunk: chunk}})
}

var (
	accepted   = json.RawMessage(`{"accepted":true}`)
	unaccepted = json.RawMessage(`{"accepted":false}`)
)

// requestSession returns the session of a model request that is under way; "" if there is none.
func (s *Server) requestSession(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.providers.requests[id]
}

// respond gives the bridge a part of a model's response.
func (c *conn) respond(ctx context.Context, part *bridgev1.ModelResponse) (json.RawMessage, error) {
	id := c.server.requestSession(part.GetRequestId())
	if id == "" {
		return unaccepted, nil
	}
	reply := &bridgev1.SendModelResponseResponse{}
	err := c.invoke(ctx, bridgev1.CallbackService_SendModelResponse_FullMethodName,
		&bridgev1.SendModelResponseRequest{SessionId: id, Response: part}, reply)
	switch code := status.Code(err); {
	case err == nil:
	case code == codes.NotFound, code == codes.FailedPrecondition:
		return unaccepted, nil
	default:
		return nil, err
	}
	if chunk := part.GetChunk(); chunk.GetEnd() || chunk.GetError() != nil {
		c.server.mu.Lock()
		delete(c.server.providers.requests, part.GetRequestId())
		c.server.mu.Unlock()
	}
	return accepted, nil
}
