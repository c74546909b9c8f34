// Package modelproxy answers the CLI's requests to models in the place of a model's server:
// a participant takes a request and gives its response, part by part.
//
// A Proxy owns the open requests of one session. Its mutex guards them and their timers, is
// taken only here, and is never held while one of the functions of Config is called; the
// session may call Drop with its own mutex held. Each request that was taken has a timer,
// which Respond restarts and Drop stops. The package starts no goroutine: Config.Go does.
//
// The first participant that answers, or sends a part, owns the request and receives the body in pieces, in order. A
// response has frames of its own kind and is no answer, because a long response must not delay commands.
//
// To the CLI an error is consent, and silence hangs the turn: where no participant takes a
// request, or the one who did leaves or falls silent, the proxy ends the response itself.
package modelproxy

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

// The methods that send a model's response to the CLI.
const (
	responseStart = "llmInference.httpResponseStart"
	responseChunk = "llmInference.httpResponseChunk"
)

// HTTP statuses of responses that the proxy gives. The CLI tries again after StatusBroken.
const (
	StatusRefused = 400
	StatusBroken  = 503
)

// codeInternal is JSON-RPC's code of an internal error.
const codeInternal = -32603

// acceptTimeout bounds how long the CLI may take to accept a part of a response.
const acceptTimeout = 30 * time.Second

// Caller makes a JSON-RPC call in the runtime that asked.
type Caller interface {
	Call(ctx context.Context, method string, params []byte, opts ...rpcconn.CallOption) (json.RawMessage, error)
}

// Config is what a proxy needs of its session.
type Config struct {
	// Ask puts a callback to participants and returns the answer.
	Ask func(ctx context.Context, p *callback.Pending) (json.RawMessage, error)
	// Take answers the callback of a model request for a participant that sends the response without an answer.
	// The session then calls Taken.
	Take func(ctx context.Context, callbackID, participant string)
	// Self stands for callers that are no participant in Pending.For.
	Self string
	// Timeout is how long a response may be silent.
	Timeout func() time.Duration
	// Position is the journal's last position.
	Position func() journal.Position
	// Classify gives an error of a call its reason.
	Classify func(err error, method string) error
	// Go runs a function on a goroutine that the host joins.
	Go func(func(context.Context)) bool
	// Logger is for failures that no caller learns of.
	Logger func() *slog.Logger
}

// Proxy has a session's open requests to models. It is safe for concurrent use.
type Proxy struct {
	cfg Config

	mu       sync.Mutex
	requests map[string]*request // by their ids
}

// request is a request to a model that a participant is to answer.
type request struct {
	id string
	rt Caller
	// start is the callback that it began with.
	start string
	// taken says that it has an owner: a participant, or "" for callers of Resolve.
	taken bool
	owner string
	// begun says that the response has a head.
	begun bool
	// silent ends the response when nothing of it comes for too long.
	silent *time.Timer
}

// Part is a part of a model's response.
type Part struct {
	RequestID string
	// Params are the parameters of the CLI's method. Head marks the head of a response.
	Params jsonobj.Object
	Head   bool
	// End says that it is the last part, Failure that the response fails with it, for which
	// it needs no head.
	End, Failure bool
}

// New returns a proxy without requests.
func New(cfg Config) *Proxy { return &Proxy{cfg: cfg, requests: map[string]*request{}} }

// Start offers a model request of the CLI as the callback id. It reports errors in the response only: the CLI
// treats an error of this call as success.
func (p *Proxy) Start(ctx context.Context, rt Caller, id string, params json.RawMessage) (json.RawMessage, error) {
	name, err := requestOf(params)
	if err != nil {
		return nil, err
	}
	r := &request{id: name, rt: rt, start: id}
	p.mu.Lock()
	p.requests[name] = r
	p.mu.Unlock()
	_, err = p.cfg.Ask(ctx, &callback.Pending{ID: id, Kind: callback.ForRequest(callback.ModelRequestStart), Params: params})
	if err != nil && ctx.Err() == nil {
		p.fail(r, StatusRefused, err.Error())
	}
	return json.RawMessage(`{}`), nil
}

// Chunk hands a piece of a request to the participant who took it.
func (p *Proxy) Chunk(ctx context.Context, id string, params json.RawMessage) (json.RawMessage, error) {
	name, err := requestOf(params)
	if err != nil {
		return nil, err
	}
	var piece struct{ Cancel bool }
	_ = json.Unmarshal(params, &piece) // it has just been read
	p.mu.Lock()
	r := p.requests[name]
	if piece.Cancel {
		p.drop(r)
	}
	taken, owner := r != nil && r.taken, p.cfg.Self
	if taken && r.owner != "" {
		owner = r.owner
	}
	p.mu.Unlock()
	if !taken {
		return json.RawMessage(`{}`), nil // the response is over, or never was to be
	}
	_, err = p.cfg.Ask(ctx, &callback.Pending{ID: id, Kind: callback.ForRequest(callback.ModelRequestChunk), Params: params, For: owner})
	if err != nil && ctx.Err() == nil {
		p.fail(r, StatusRefused, err.Error())
	}
	return json.RawMessage(`{}`), nil
}

func requestOf(params json.RawMessage) (string, error) {
	var d struct{ RequestID string }
	if json.Unmarshal(params, &d) != nil || d.RequestID == "" {
		return "", &rpcconn.Error{Code: codeInternal, Message: "a model request without requestId"}
	}
	return d.RequestID, nil
}

// Has reports whether a request is open.
func (p *Proxy) Has(request string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[request] != nil
}

// Taken notes that a participant has answered a request's callback, and so owns the request. Its
// silence is bounded from now on.
func (p *Proxy) Taken(callbackID, participant string) {
	timeout := p.cfg.Timeout()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		if r.start == callbackID && !r.taken {
			r.taken, r.owner = true, participant
			r.silent = time.AfterFunc(timeout, func() {
				p.cfg.Go(func(context.Context) { p.fail(r, StatusRefused, "the response did not arrive in time") })
			})
		}
	}
}

// Respond gives the CLI a part of a model's response. The participant is "" for callers that are
// none; they may respond for every participant.
func (p *Proxy) Respond(ctx context.Context, participant string, part Part) (at journal.Position, err error) {
	r, err := p.owned(ctx, part.RequestID, participant)
	if err != nil {
		return at, err
	}
	timeout := p.cfg.Timeout()
	p.mu.Lock()
	if p.requests[r.id] == r {
		r.silent.Reset(timeout)
	}
	begun := r.begun
	r.begun = begun || part.Head
	p.mu.Unlock()
	if begun == part.Head && !(part.Failure && !begun) {
		return at, fault.New(fault.AnswerInvalid, "a response to %q must begin with its only head", part.RequestID).WithField("request_id")
	}
	accepted, at, err := p.give(ctx, r, part)
	if err != nil || accepted && !part.End {
		return at, err
	}
	p.mu.Lock()
	p.drop(r)
	p.mu.Unlock()
	if !accepted {
		return at, over(part.RequestID)
	}
	return at, nil
}

// NotFound returns CALLBACK_NOT_FOUND: no model request with the id is pending, or the caller may not see it.
func NotFound(request string) error {
	return fault.New(fault.CallbackNotFound, "no model request %q is pending", request).WithField("request_id").
		With("request_id", request)
}

func over(request string) error {
	return fault.New(fault.CallbackResolved, "the model request %q has ended", request).WithField("request_id").With("request_id", request)
}

// owned returns a request that the participant has taken, or takes by this.
func (p *Proxy) owned(ctx context.Context, name, participant string) (*request, error) {
	p.mu.Lock()
	r := p.requests[name]
	taken := r != nil && r.taken
	p.mu.Unlock()
	if r == nil {
		return nil, NotFound(name)
	}
	if !taken {
		p.cfg.Take(ctx, r.start, participant) // where another participant takes it at this moment, the check below shows it
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !r.taken || participant != "" && r.owner != participant {
		return nil, over(name)
	}
	return r, nil
}

// give makes the call that a part of a response is.
func (p *Proxy) give(ctx context.Context, r *request, part Part) (accepted bool, at journal.Position, err error) {
	method, params := responseChunk, part.Params.Clone()
	if part.Head {
		method = responseStart
	}
	params.SetString("requestId", r.id)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), acceptTimeout)
	defer cancel()
	result, err := r.rt.Call(ctx, method, params.JSON(), rpcconn.Priority(), rpcconn.OnReply(func() { at = p.cfg.Position() }))
	if err != nil {
		return false, at, p.cfg.Classify(err, method)
	}
	var ok struct{ Accepted bool }
	return json.Unmarshal(result, &ok) == nil && ok.Accepted, at, nil
}

// fail ends a response that does not come, or not to its end.
func (p *Proxy) fail(r *request, status int, why string) {
	p.mu.Lock()
	open := p.requests[r.id] == r
	p.drop(r)
	begun := r.begun
	p.mu.Unlock()
	if !open {
		return
	}
	for _, part := range failure(begun, status, why) {
		if _, _, err := p.give(context.Background(), r, part); err != nil {
			p.cfg.Logger().Warn("ending a model response failed", "error", err)
			return
		}
	}
}

// failure is the end of a response: an error, or a whole response with a status if it has not
// begun.
func failure(begun bool, status int, why string) []Part {
	text, _ := json.Marshal(why) // a string always encodes
	message := json.RawMessage(jsonobj.Object{{Key: "message", Value: text}}.JSON())
	if begun {
		return []Part{{Params: jsonobj.Object{{Key: "data", Value: json.RawMessage(`""`)}, {Key: "error", Value: message}}}}
	}
	body, _ := json.Marshal(string(jsonobj.Object{{Key: "error", Value: message}}.JSON()))
	number, _ := json.Marshal(status)
	return []Part{
		{Head: true, Params: jsonobj.Object{
			{Key: "status", Value: number}, {Key: "headers", Value: json.RawMessage(`{"content-type":["application/json"]}`)},
		}},
		{Params: jsonobj.Object{{Key: "data", Value: body}, {Key: "end", Value: json.RawMessage("true")}}},
	}
}

// drop forgets a request, which may be nil. The caller holds mu.
func (p *Proxy) drop(r *request) {
	if r == nil {
		return
	}
	if r.silent != nil {
		r.silent.Stop()
	}
	if p.requests[r.id] == r {
		delete(p.requests, r.id)
	}
}

// Drop forgets all requests: their runtime has ended, or the session's use.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		p.drop(r)
	}
}

// FailOf ends the responses of a participant that has left, or whose connection broke.
func (p *Proxy) FailOf(participant string, status int, why string) {
	p.mu.Lock()
	var theirs []*request
	for _, r := range p.requests {
		if r.taken && r.owner == participant {
			theirs = append(theirs, r)
		}
	}
	p.mu.Unlock()
	for _, r := range theirs {
		p.fail(r, status, why)
	}
}
