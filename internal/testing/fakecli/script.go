package fakecli

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Versions reported unless the script says otherwise.
const (
	DefaultVersion  = "1.0.102"
	DefaultProtocol = 3
)

// Script is what a fake CLI does. The zero Script answers every prompt with a
// short text.
type Script struct {
	// Version and Protocol are reported by connect, ping and status.get.
	Version  string `json:"version,omitempty"`
	Protocol int    `json:"protocol,omitempty"`
	// Start is what goes wrong before the first byte is read.
	Start Start `json:"start,omitzero"`
	// Prompts are tried in order.
	Prompts []Prompt `json:"prompts,omitempty"`
	// Faults are tried in order for each request received.
	Faults []MethodFault `json:"faults,omitempty"`
	// Replies gives methods fixed results; they come before the built-in ones.
	Replies map[string]json.RawMessage `json:"replies,omitempty"`
}

// Start is a misbehaviour of the executable at its start.
type Start struct {
	// DelayMS passes before anything else.
	DelayMS int `json:"delayMs,omitempty"`
	// Stderr is written before the first frame.
	Stderr string `json:"stderr,omitempty"`
	// Crash ends the process with ExitCode instead of serving.
	Crash    bool `json:"crash,omitempty"`
	ExitCode int  `json:"exitCode,omitempty"`
}

// Prompt answers prompts.
type Prompt struct {
	// Match is a part of the prompt; empty matches any.
	Match string `json:"match,omitempty"`
	// Times is how often this prompt answers; 0 is always.
	Times int `json:"times,omitempty"`
	// Turns are the model calls made for it.
	Turns []Turn `json:"turns"`
}

// Turn is one model call and what follows from it, in the order of the fields.
type Turn struct {
	// PauseMS passes before the model sends anything. Hang never ends.
	PauseMS int  `json:"pauseMs,omitempty"`
	Hang    bool `json:"hang,omitempty"`
	// Requests are made of the client, one after the other.
	Requests []Reverse `json:"requests,omitempty"`
	// Asks are events that ask the client for something, such as
	// elicitation.requested, command.execute or mcp.oauth_required; requestId
	// is added, and the turn waits until the method for it is called.
	Asks []Event `json:"asks,omitempty"`
	// Deltas is a generated stream, Text a given one; with both, Deltas first. In Text,
	// {{answer}} stands for the answer to the last of the Requests.
	Deltas *Deltas `json:"deltas,omitempty"`
	Text   string  `json:"text,omitempty"`
	// Events are emitted as they are. An assistant.usage replaces the generated one.
	Events []Event `json:"events,omitempty"`
	// Error ends the whole answer as a failed model call does.
	Error *ModelError `json:"error,omitempty"`
	// Tools are called at once; the turn ends when all have answered.
	Tools []Tool `json:"tools,omitempty"`
	// Fault strikes at its At.
	Fault *Fault `json:"fault,omitempty"`
}

// Deltas is a stream of generated text: Count pieces of Size bytes.
type Deltas struct {
	Count int `json:"count"`
	Size  int `json:"size,omitempty"`
	// Rate is in deltas per second; 0 is flat out.
	Rate float64 `json:"rate,omitempty"`
	// Copies, if set, sends events of the stream a second time, late.
	Copies *Copies `json:"copies,omitempty"`
	// Early, if set, sends pieces of the stream ahead of their place. It goes without Copies.
	Early *Early `json:"early,omitempty"`
}

// Early is the real CLI's habit, once it has fallen behind in a burst, of sending some pieces ahead of the waiting
// ones, and not again when it reaches them. As the real one, it does so only in a burst (1,024 pieces within a second)
// whose oldest piece has waited for half a second at least and not for more than a second, also if the script says
// otherwise: a machine that is too slow for that sees a stream in order.
type Early struct {
	// After is how many pieces are sent in order, and at once, before it begins.
	After int `json:"after,omitempty"`
	// LagMS is how long the others then wait to be sent, hence how far ahead the early ones are.
	LagMS int `json:"lagMs"`
	// Of every so many pieces the first Run (default 1) are early.
	Every int `json:"every"`
	Run   int `json:"run,omitempty"`
}

// Copies is the real CLI's habit of delivering ephemeral events of a burst
// twice and out of order, under the same id.
type Copies struct {
	// Every n-th event gets a copy (default 1: all).
	Every int `json:"every,omitempty"`
	// After is how many events later the copy comes.
	After int `json:"after"`
	// PastIdle sends the copies still due after session.idle, in reverse
	// order, instead of before the message.
	PastIdle bool `json:"pastIdle,omitempty"`
}

// Event is an event of the script's own.
type Event struct {
	Type      string          `json:"type"`
	Data      json.RawMessage `json:"data,omitempty"`
	Ephemeral bool            `json:"ephemeral,omitempty"`
}

// Reverse is a request made of the client, such as userInput.request or hooks.invoke. The turn waits for its answer,
// and goes on with any answer.
type Reverse struct {
	Method string `json:"method"`
	// Params are an object; sessionId is added.
	Params json.RawMessage `json:"params,omitempty"`
	// Global leaves sessionId out.
	Global bool `json:"global,omitempty"`
}

// ModelError is what session.error says.
type ModelError struct {
	Type       string `json:"errorType"`
	Message    string `json:"message"`
	StatusCode int    `json:"statusCode,omitempty"`
}

// Tool is one tool call of the model.
type Tool struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Output is what a tool of the CLI's own gives.
	Output string `json:"output,omitempty"`
	// Permission replaces the permissionRequest asked; by default a
	// custom-tool one.
	Permission json.RawMessage `json:"permission,omitempty"`
}

// Kinds of Fault.
const (
	FaultHang           = "hang"            // the request is never answered
	FaultError          = "error"           // it is answered with Code, Message, Data
	FaultDelay          = "delay"           // it is answered after DelayMS
	FaultDuplicateReply = "duplicate_reply" // it is answered twice
	FaultUnknownReply   = "unknown_reply"   // an answer to nothing comes first
	FaultGarbage        = "garbage"         // bytes that are no frame
	FaultBadJSON        = "bad_json"        // a frame that holds no JSON
	FaultHugeFrame      = "huge_frame"      // a whole event of Bytes bytes
	FaultHugeHeader     = "huge_header"     // a header that announces Bytes bytes
	FaultHalfFrame      = "half_frame"      // the connection ends inside a frame
	FaultClose          = "close"           // the connection ends
	FaultExit           = "exit"            // the process ends with ExitCode, no farewell
	FaultStopReading    = "stop_reading"    // nothing is read any more
)

// Points of a turn at which a Fault strikes.
const (
	AtStart  = "start"  // before the model says anything
	AtStream = "stream" // in the middle of the deltas
	AtTools  = "tools"  // when the tools have been asked for
	AtEnd    = "end"    // before session.idle
)

var (
	points           = []string{"", AtStart, AtStream, AtTools, AtEnd}
	connectionFaults = []string{FaultGarbage, FaultBadJSON, FaultHugeFrame, FaultHugeHeader, FaultHalfFrame, FaultClose,
		FaultExit, FaultStopReading}
	faultKinds = append([]string{FaultHang, FaultError, FaultDelay, FaultDuplicateReply, FaultUnknownReply},
		connectionFaults...)
)

// Fault is one misbehaviour.
type Fault struct {
	Kind     string          `json:"kind"`
	At       string          `json:"at,omitempty"` // in a Turn; default AtStart
	Code     int             `json:"code,omitempty"`
	Message  string          `json:"message,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
	Bytes    int64           `json:"bytes,omitempty"`
	DelayMS  int             `json:"delayMs,omitempty"`
	ExitCode int             `json:"exitCode,omitempty"`
}

// MethodFault is a Fault that strikes requests of one method ("" is any).
type MethodFault struct {
	Method string `json:"method,omitempty"`
	// After is how many requests pass first, Times how many are struck then;
	// 0 is all.
	After int `json:"after,omitempty"`
	Times int `json:"times,omitempty"`
	Fault
}

// LoadScript reads a script given as JSON or as the path of a file with it.
// Unknown members are errors, so that a misspelt fault does not go unnoticed.
func LoadScript(textOrPath string) (Script, error) {
	var s Script
	if textOrPath == "" {
		return s, nil
	}
	text := textOrPath
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		b, err := os.ReadFile(textOrPath)
		if err != nil {
			return s, fmt.Errorf("read script: %w", err)
		}
		text = string(b)
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return s, fmt.Errorf("parse script: %w", err)
	}
	if err := s.validate(); err != nil {
		return s, fmt.Errorf("parse script: %w", err)
	}
	return s, nil
}

// validate finds names that mean nothing: a misspelt one would quietly leave a
// test without what it tests.
func (s *Script) validate() error {
	for _, f := range s.Faults {
		if !slices.Contains(faultKinds, f.Kind) {
			return fmt.Errorf("unknown fault %q", f.Kind)
		}
	}
	for _, p := range s.Prompts {
		for _, t := range p.Turns {
			for _, e := range t.Asks {
				if _, ok := askedBy[e.Type]; !ok {
					return fmt.Errorf("event %q asks for nothing", e.Type)
				}
			}
			if d := t.Deltas; d != nil && d.Early != nil &&
				(d.Copies != nil || d.Early.LagMS <= int(minLag.Milliseconds()) ||
					d.Early.Every <= max(1, d.Early.Run)) {
				return fmt.Errorf("early pieces %+v", *d.Early)
			}
			if f := t.Fault; f != nil &&
				(!slices.Contains(connectionFaults, f.Kind) || !slices.Contains(points, f.At)) {
				return fmt.Errorf("unknown fault %q at %q in a turn", f.Kind, f.At)
			}
		}
	}
	return nil
}
