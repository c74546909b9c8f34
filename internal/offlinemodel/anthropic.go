package offlinemodel

import (
	"cmp"
	"encoding/json"
	"strconv"
)

// anthropicWire is Anthropic messages.
type anthropicWire struct{}

// thinkingSignature stands where the real API puts the proof that a thought is
// its own; clients send it back unread.
const thinkingSignature = "b2ZmbGluZQ=="

func (anthropicWire) stream(w *eventWriter, r reply) emitter {
	return &anthropicStream{w: w, reply: r, index: -1}
}

func (anthropicWire) document(r reply, blocks []block) any {
	contents := make([]any, len(blocks))
	for i, b := range blocks {
		switch b.kind {
		case blockText:
			contents[i] = map[string]any{"type": "text", "text": b.text}
		case blockReasoning:
			contents[i] = map[string]any{"type": "thinking", "thinking": b.text, "signature": thinkingSignature}
		case blockToolCall:
			contents[i] = map[string]any{"type": "tool_use", "id": b.id, "name": b.name, "input": jsonOrString(b.text)}
		}
	}
	return map[string]any{
		"id": r.id, "type": "message", "role": "assistant", "model": r.model, "content": contents,
		"stop_reason": anthropicStopReason(r.finish), "stop_sequence": nil, "usage": anthropicUsage(r.usage),
	}
}

// jsonOrString keeps broken arguments visible in an API that wants an object.
func jsonOrString(text string) any {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return text
}

func (anthropicWire) failure(f *Failure) any {
	// Here the type is the only machine-readable code there is.
	return map[string]any{"type": "error", "error": map[string]any{
		"type": cmp.Or(f.Type, f.Code, anthropicErrorType(f.Status)), "message": f.Message,
	}}
}

func anthropicErrorType(status int) string {
	switch {
	case status == 401:
		return "authentication_error"
	case status == 403:
		return "permission_error"
	case status == 404:
		return "not_found_error"
	case status == 413:
		return "request_too_large"
	case status == 429:
		return "rate_limit_error"
	case status == 529:
		return "overloaded_error"
	case status >= 500:
		return "api_error"
	default:
		return "invalid_request_error"
	}
}

func anthropicStopReason(finish string) string {
	switch finish {
	case finishToolCalls:
		return "tool_use"
	case finishLength:
		return "max_tokens"
	case finishFilter:
		return "refusal"
	default:
		return "end_turn"
	}
}

// anthropicUsage counts cached input apart from the rest, as this API does.
func anthropicUsage(u Usage) map[string]any {
	return map[string]any{
		"input_tokens": max(u.InputTokens-u.CachedTokens, 0), "output_tokens": u.OutputTokens,
		"cache_read_input_tokens": u.CachedTokens, "cache_creation_input_tokens": 0,
	}
}

type anthropicStream struct {
	w      *eventWriter
	reply  reply
	index  int
	kind   blockKind
	prefix string // of a delta of the current block
}

func (s *anthropicStream) start() {
	s.w.event("message_start", map[string]any{"type": "message_start", "message": map[string]any{
		"id": s.reply.id, "type": "message", "role": "assistant", "model": s.reply.model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": anthropicUsage(Usage{InputTokens: s.reply.usage.InputTokens,
			CachedTokens: s.reply.usage.CachedTokens}),
	}})
}

func (s *anthropicStream) begin(b block) {
	s.index++
	s.kind = b.kind
	var start map[string]any
	var delta string
	switch b.kind {
	case blockText:
		start = map[string]any{"type": "text", "text": ""}
		delta = `{"type":"text_delta","text":`
	case blockReasoning:
		start = map[string]any{"type": "thinking", "thinking": "", "signature": ""}
		delta = `{"type":"thinking_delta","thinking":`
	case blockToolCall:
		start = map[string]any{"type": "tool_use", "id": b.id, "name": b.name, "input": map[string]any{}}
		delta = `{"type":"input_json_delta","partial_json":`
	}
	s.w.event("content_block_start",
		map[string]any{"type": "content_block_start", "index": s.index, "content_block": start})
	s.prefix = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":" +
		strconv.Itoa(s.index) + `,"delta":` + delta
}

func (s *anthropicStream) delta(text string) { s.w.write(s.prefix, quote(text), "}}\n\n") }

func (s *anthropicStream) end() {
	if s.kind == blockReasoning {
		s.w.event("content_block_delta", map[string]any{"type": "content_block_delta", "index": s.index,
			"delta": map[string]any{"type": "signature_delta", "signature": thinkingSignature}})
	}
	s.w.event("content_block_stop", map[string]any{"type": "content_block_stop", "index": s.index})
}

func (s *anthropicStream) finish(finish string, usage Usage) {
	s.w.event("message_delta", map[string]any{
		"type": "message_delta", "usage": anthropicUsage(usage),
		"delta": map[string]any{"stop_reason": anthropicStopReason(finish), "stop_sequence": nil},
	})
	s.w.event("message_stop", map[string]any{"type": "message_stop"})
}
