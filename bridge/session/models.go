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
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// The methods that send a model's response to the CLI.
const (
	responseStart = "llmInference.httpResponseStart"
	responseChunk = "llmInference.httpResponseChunk"
)

// HTTP statuses of responses that the bridge gives. The CLI tries again after modelBroken.
const (
	modelRefused = 400
	modelBroken  = 503
)

// acceptTimeout bounds how long the CLI may take to accept a part of a response.
const acceptTimeout = 30 * time.Second

// Models answers the CLI's requests to models in the place of a model's server: a participant takes a request and gives
// its response, part by part.
//
// The first participant that answers, or sends a part, owns the request and receives the body in pieces, in order. A
// response has frames of its own kind and is no answer, because a long response must not delay commands. To the CLI an
// error is consent, and silence hangs the turn: where no participant takes a request, or the one who did leaves or falls
// silent, Models ends the response itself.
type Models struct {
	s *Session

	// requests are the open ones by their ids. The session's lock guards them.
	requests map[string]*modelRequest
}

// modelRequest is a request to a model that a participant is to answer.
type modelRequest struct {
	id string
	rt modelCaller
	// start is the callback that it began with.
	start string
	// taken says that it has an owner: a participant, or "" for callers of Resolve.
	taken bool
	owner string
	// begun says that the response has a head.
	begun bool
	// silent ends the response when nothing of it comes for too long. It is nil until the request is taken.
	silent *time.Timer
}

// modelCaller makes a call in the runtime that asked.
type modelCaller interface {
	Call(ctx context.Context, method string, params []byte, opts ...rpcconn.CallOption) (json.RawMessage, error)
}

// ModelPart is a part of a model's response.
type ModelPart struct {
	RequestID string
	// Params are the parameters of the CLI's method. Head marks the head of a response.
	Params jsonobj.Object
	Head   bool
	// End says that it is the last part, Failure that the response fails with it, for which
	// it needs no head.
	End, Failure bool
}

// Start offers a model request of the CLI as the callback id. It reports errors in the response only: the CLI
// treats an error of this call as success.
func (m *Models) Start(ctx context.Context, rt modelCaller, id string, params json.RawMessage) (json.RawMessage, error) {
	name, err := modelRequestID(params)
	if err != nil {
		return nil, err
	}
	r := &modelRequest{id: name, rt: rt, start: id}
	m.s.update(func() { m.requests[name] = r })
	m.ask(ctx, r, &callback.Pending{ID: id, Kind: callback.ForRequest(callback.ModelRequestStart), Params: params})
	return json.RawMessage(`{}`), nil
}

// Chunk hands a piece of a request to the participant who took it.
func (m *Models) Chunk(ctx context.Context, id string, params json.RawMessage) (json.RawMessage, error) {
	name, err := modelRequestID(params)
	if err != nil {
		return nil, err
	}
	var piece struct{ Cancel bool }
	_ = json.Unmarshal(params, &piece) // it has just been read
	m.s.mu.Lock()
	r := m.requests[name]
	taken, owner := r != nil && r.taken, roster.Itself
	if taken && r.owner != "" {
		owner = r.owner
	}
	if piece.Cancel && r != nil {
		m.drop(r)
	}
	m.s.mu.Unlock()
	if taken { // else the response is over, or never was to be
		m.ask(ctx, r, &callback.Pending{ID: id, Kind: callback.ForRequest(callback.ModelRequestChunk), Params: params, For: owner})
	}
	return json.RawMessage(`{}`), nil
}

// ask puts a callback about a request to participants, and ends the response if none takes it.
func (m *Models) ask(ctx context.Context, r *modelRequest, p *callback.Pending) {
	if _, err := m.s.callbacks.ask(ctx, p); err != nil && ctx.Err() == nil {
		m.fail(r, modelRefused, err.Error())
	}
}

func modelRequestID(params json.RawMessage) (string, error) {
	var d struct{ RequestID string }
	if json.Unmarshal(params, &d) != nil || d.RequestID == "" {
		return "", &rpcconn.Error{Code: callback.DefaultErrorCode, Message: "a model request without requestId"}
	}
	return d.RequestID, nil
}

// Has reports whether a request is open.
func (m *Models) Has(request string) bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.requests[request] != nil
}

// takenBy notes that a participant has answered a request's callback, and so owns the request. Its silence is bounded from
// now on.
func (m *Models) takenBy(callbackID, participant string) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	for _, r := range m.requests {
		if r.start == callbackID && !r.taken {
			r.taken, r.owner = true, participant
			r.silent = time.AfterFunc(m.s.loader.timeout, func() {
				m.s.host.Go(func(context.Context) { m.fail(r, modelRefused, "the response did not arrive in time") })
			})
		}
	}
}

// Respond gives the CLI a part of a model's response. The participant is "" for callers that are
// none; they may respond for every participant.
func (m *Models) Respond(ctx context.Context, participant string, part ModelPart) (at journal.Position, err error) {
	r, err := m.owned(ctx, part.RequestID, participant)
	if err != nil {
		return at, err
	}
	m.s.mu.Lock()
	if m.requests[r.id] == r {
		r.silent.Reset(m.s.loader.timeout)
	}
	begun := r.begun
	r.begun = begun || part.Head
	m.s.mu.Unlock()
	if begun == part.Head && !(part.Failure && !begun) {
		return at, fault.New(fault.AnswerInvalid, "a response to %q must begin with its only head", part.RequestID).WithField("request_id")
	}
	accepted, at, err := m.give(ctx, r, part)
	if err != nil || accepted && !part.End {
		return at, err
	}
	m.s.update(func() { m.drop(r) })
	if !accepted {
		return at, modelRequestEnded(part.RequestID)
	}
	return at, nil
}

// NoModelRequest returns CALLBACK_NOT_FOUND: no model request with the id is pending, or the caller may not see it.
func NoModelRequest(id string) error {
	return fault.New(fault.CallbackNotFound, "no model request %q is pending", id).WithField("request_id").With("request_id", id)
}

func modelRequestEnded(id string) error {
	return fault.New(fault.CallbackResolved, "the model request %q has ended", id).WithField("request_id").With("request_id", id)
}

// owned returns a request that the participant has taken, or takes by this.
func (m *Models) owned(ctx context.Context, name, participant string) (*modelRequest, error) {
	m.s.mu.Lock()
	r := m.requests[name]
	taken := r != nil && r.taken
	m.s.mu.Unlock()
	if r == nil {
		return nil, NoModelRequest(name)
	}
	if !taken { // where another participant takes it at this moment, the check below shows it
		by, reply := callback.Responder{Participant: participant}, callback.Reply{Members: json.RawMessage(`{}`)}
		m.s.callbacks.Resolve(ctx, r.start, by, reply, func(journal.Position, error) {})
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if !r.taken || participant != "" && r.owner != participant {
		return nil, modelRequestEnded(name)
	}
	return r, nil
}

// give makes the call that a part of a response is.
func (m *Models) give(ctx context.Context, r *modelRequest, part ModelPart) (accepted bool, at journal.Position, err error) {
	method, params := responseChunk, part.Params.Clone()
	if part.Head {
		method = responseStart
	}
	params.SetString("requestId", r.id)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), acceptTimeout)
	defer cancel()
	result, err := r.rt.Call(ctx, method, params.JSON(), rpcconn.Priority(), rpcconn.OnReply(func() { at = m.s.journal.Last() }))
	if err != nil {
		return false, at, Classify(err, method)
	}
	var ok struct{ Accepted bool }
	return json.Unmarshal(result, &ok) == nil && ok.Accepted, at, nil
}

// fail ends a response that does not come, or not to its end.
func (m *Models) fail(r *modelRequest, status int, why string) {
	m.s.mu.Lock()
	open := m.requests[r.id] == r
	m.drop(r)
	begun := r.begun
	m.s.mu.Unlock()
	if !open {
		return
	}
	for _, part := range failedResponse(begun, status, why) { // a CLI that is slow to accept one needs the others, too
		if _, _, err := m.give(context.Background(), r, part); err != nil {
			m.s.host.Logger().Warn("ending a model response failed", "session_id", m.s.id, "error", err)
		}
	}
}

// failedResponse is the end of a response: an error, or a whole response with a status if it has not begun.
func failedResponse(begun bool, status int, why string) []ModelPart {
	text, _ := json.Marshal(why) // a string always encodes
	message := json.RawMessage(jsonobj.Object{{Key: "message", Value: text}}.JSON())
	if begun {
		return []ModelPart{{Params: jsonobj.Object{{Key: "data", Value: json.RawMessage(`""`)}, {Key: "error", Value: message}}}}
	}
	body, _ := json.Marshal(string(jsonobj.Object{{Key: "error", Value: message}}.JSON()))
	number, _ := json.Marshal(status)
	return []ModelPart{
		{Head: true, Params: jsonobj.Object{
			{Key: "status", Value: number}, {Key: "headers", Value: json.RawMessage(`{"content-type":["application/json"]}`)},
		}},
		{Params: jsonobj.Object{{Key: "data", Value: body}, {Key: "end", Value: json.RawMessage("true")}}},
	}
}

// drop forgets a request. The caller holds the session's lock.
func (m *Models) drop(r *modelRequest) {
	if r.silent != nil {
		r.silent.Stop()
	}
	if m.requests[r.id] == r {
		delete(m.requests, r.id)
	}
}

// dropAll forgets all requests: their runtime has ended, or the session's use. The caller holds the session's lock.
func (m *Models) dropAll() {
	for _, r := range m.requests {
		m.drop(r)
	}
}

// failOf ends the responses of a participant that has left, or whose connection broke.
func (m *Models) failOf(participant string, status int, why string) {
	m.s.mu.Lock()
	var theirs []*modelRequest
	for _, r := range m.requests {
		if r.taken && r.owner == participant {
			theirs = append(theirs, r)
		}
	}
	m.s.mu.Unlock()
	for _, r := range theirs {
		m.fail(r, status, why)
	}
}
