package session

import (
	"context"
	"encoding/json"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

// The calls by which the CLI is given a model's response.
const (
	responseStart = "llmInference.httpResponseStart"
	responseChunk = "llmInference.httpResponseChunk"
)

// The HTTP statuses of responses that nobody gives. The CLI tries again after the second.
const (
	statusRefused = 400
	statusBroken  = 503
)

// modelRequest is a request to a model that somebody is to answer in the CLI's place. The
// session's mu guards it.
type modelRequest struct {
	id string
	rt Runtime
	// start is the callback that it began with.
	start string
	// taken says that somebody does, owner who: a participant, or whoever calls Resolve.
	taken bool
	owner string
	// begun says that the response has a head.
	begun bool
	// silent ends the response when nothing of it comes for too long.
	silent *time.Timer
}

// ModelPart is a part of a model's response.
type ModelPart struct {
	RequestID string
	// Params are those of the CLI's call; Head says that they are of a response's head.
	Params jsonobj.Object
	Head   bool
	// End says that it is the last part, Failure that the response fails with it, for which
	// it needs no head.
	End, Failure bool
}

// AskModel is Ask for the parts of a request to a model, which is answered in calls of the
// runtime's.
func (s *Session) AskModel(ctx context.Context, rt Runtime, id, method string, params json.RawMessage) (json.RawMessage, error) {
	switch method {
	case callback.ModelRequestStart:
		return s.askModelStart(ctx, rt, id, params)
	case callback.ModelRequestChunk:
		return s.askModelChunk(ctx, id, params)
	}
	return s.Ask(ctx, id, method, params)
}

// askModelStart offers a request to a model. The CLI takes an error for consent, so that
// it is told of none here but in a response.
func (s *Session) askModelStart(ctx context.Context, rt Runtime, id string, params json.RawMessage) (json.RawMessage, error) {
	request, err := requestOf(params)
	if err != nil {
		return nil, err
	}
	m := &modelRequest{id: request, rt: rt, start: id}
	s.mu.Lock()
	if s.models == nil {
		s.models = map[string]*modelRequest{}
	}
	s.models[request] = m
	s.mu.Unlock()
	_, err = s.ask(ctx, &callback.Pending{ID: id, Kind: callback.ForRequest(callback.ModelRequestStart), Params: params})
	if err != nil && ctx.Err() == nil {
		s.failModel(m, statusRefused, err.Error())
	}
	return json.RawMessage(`{}`), nil
}

// askModelChunk hands a piece of a request to whoever took it.
func (s *Session) askModelChunk(ctx context.Context, id string, params json.RawMessage) (json.RawMessage, error) {
	request, err := requestOf(params)
	if err != nil {
		return nil, err
	}
	var piece struct{ Cancel bool }
	_ = json.Unmarshal(params, &piece) // it has just been read
	s.mu.Lock()
	m := s.models[request]
	if piece.Cancel {
		s.dropModel(m)
	}
	taken, owner := m != nil && m.taken, itself
	if taken && m.owner != "" {
		owner = m.owner
	}
	s.mu.Unlock()
	if !taken {
		return json.RawMessage(`{}`), nil // the response is over, or never was to be
	}
	_, err = s.ask(ctx, &callback.Pending{ID: id, Kind: callback.ForRequest(callback.ModelRequestChunk), Params: params, For: owner})
	if err != nil && ctx.Err() == nil {
		s.failModel(m, statusRefused, err.Error())
	}
	return json.RawMessage(`{}`), nil
}

func requestOf(params json.RawMessage) (string, error) {
	var p struct{ RequestID string }
	if json.Unmarshal(params, &p) != nil || p.RequestID == "" {
		return "", &rpcconn.Error{Code: codeInternal, Message: "a model request without requestId"}
	}
	return p.RequestID, nil
}

// HasModel reports whether a request to a model is the session's, and still open.
func (s *Session) HasModel(request string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.models[request] != nil
}

// takeModel notes who took a request on by answering its callback.
func (s *Session) takeModel(callbackID, participant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.models {
		if m.start == callbackID && !m.taken {
			s.taken(m, participant)
		}
	}
}

// taken notes that a request has an owner, whose silence is bounded from now on. The
// caller holds mu.
func (s *Session) taken(m *modelRequest, owner string) {
	m.taken, m.owner = true, owner
	m.silent = time.AfterFunc(s.timeout, func() {
		s.host.Go(func(context.Context) { s.failModel(m, statusRefused, "the response did not come in time") })
	})
}

// RespondModel gives the CLI a part of a model's response.
func (s *Session) RespondModel(ctx context.Context, participant string, part ModelPart) (at journal.Position, err error) {
	m, err := s.owned(ctx, part.RequestID, participant)
	if err != nil {
		return at, err
	}
	s.mu.Lock()
	if s.models[m.id] == m {
		m.silent.Reset(s.timeout)
	}
	begun := m.begun
	m.begun = begun || part.Head
	s.mu.Unlock()
	if begun == part.Head && !(part.Failure && !begun) {
		return at, fault.New(fault.AnswerInvalid, "the head of the response to %q comes first, and once", part.RequestID).WithField("request_id")
	}
	accepted, at, err := s.giveModel(ctx, m, part)
	if err != nil || accepted && !part.End {
		return at, err
	}
	s.mu.Lock()
	s.dropModel(m)
	s.mu.Unlock()
	if !accepted {
		return at, modelOver(part.RequestID)
	}
	return at, nil
}

func modelOver(request string) error {
	return fault.New(fault.CallbackResolved, "nobody waits for the response to %q any more", request).WithField("request_id").With("request_id", request)
}

// owned returns a request that the participant has taken, or takes by this.
func (s *Session) owned(ctx context.Context, request, participant string) (*modelRequest, error) {
	s.mu.Lock()
	m := s.models[request]
	taken := m != nil && m.taken
	s.mu.Unlock()
	if m == nil {
		return nil, fault.New(fault.CallbackNotFound, "no request %q to a model is open", request).WithField("request_id").With("request_id", request)
	}
	if !taken {
		// A callback that somebody else answers at this moment shows below.
		_, _ = s.Resolve(ctx, m.start, callback.Giver{Participant: participant}, callback.Reply{Members: json.RawMessage(`{}`)})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.taken || participant != "" && m.owner != participant {
		return nil, modelOver(request)
	}
	return m, nil
}

// giveModel makes the call that a part of a response is.
func (s *Session) giveModel(ctx context.Context, m *modelRequest, part ModelPart) (accepted bool, at journal.Position, err error) {
	method, params := responseChunk, part.Params.Clone()
	if part.Head {
		method = responseStart
	}
	params.SetString("requestId", m.id)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	result, err := m.rt.Call(ctx, method, params.JSON(), rpcconn.Priority(), rpcconn.OnReply(func() { at = s.journal.Last() }))
	if err != nil {
		return false, at, Classify(err, method)
	}
	var ok struct{ Accepted bool }
	return json.Unmarshal(result, &ok) == nil && ok.Accepted, at, nil
}

// failModel ends a response that does not come, or not to its end.
func (s *Session) failModel(m *modelRequest, status int, why string) {
	s.mu.Lock()
	open := s.models[m.id] == m
	s.dropModel(m)
	begun := m.begun
	s.mu.Unlock()
	if !open {
		return
	}
	text, _ := json.Marshal(why) // a string always encodes
	parts := []ModelPart{{Params: jsonobj.Object{{Key: "data", Value: json.RawMessage(`""`)}, {Key: "error", Value: jsonobj.Object{{Key: "message", Value: text}}.JSON()}}}}
	if !begun {
		body, _ := json.Marshal(string(jsonobj.Object{{Key: "error", Value: jsonobj.Object{{Key: "message", Value: text}}.JSON()}}.JSON()))
		number, _ := json.Marshal(status)
		parts = []ModelPart{
			{Head: true, Params: jsonobj.Object{{Key: "status", Value: number}, {Key: "headers", Value: json.RawMessage(`{"content-type":["application/json"]}`)}}},
			{Params: jsonobj.Object{{Key: "data", Value: body}, {Key: "end", Value: json.RawMessage("true")}}},
		}
	}
	for _, part := range parts {
		if _, _, err := s.giveModel(context.Background(), m, part); err != nil {
			s.host.Logger().Warn("response of a model not ended", "session_id", s.id, "error", err)
			return
		}
	}
}

// dropModel forgets a request, which may be nil. The caller holds mu.
func (s *Session) dropModel(m *modelRequest) {
	if m == nil {
		return
	}
	if m.silent != nil {
		m.silent.Stop()
	}
	if s.models[m.id] == m {
		delete(s.models, m.id)
	}
}

// dropModels forgets all requests: their runtime has ended, or the session's use. The
// caller holds mu.
func (s *Session) dropModels() {
	for _, m := range s.models {
		s.dropModel(m)
	}
}

// failModelsOf ends the responses of a participant that has left.
func (s *Session) failModelsOf(participant string, status int, why string) {
	s.mu.Lock()
	var theirs []*modelRequest
	for _, m := range s.models {
		if m.taken && m.owner == participant {
			theirs = append(theirs, m)
		}
	}
	s.mu.Unlock()
	for _, m := range theirs {
		s.failModel(m, status, why)
	}
}
