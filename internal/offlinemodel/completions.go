package offlinemodel

import (
	"cmp"
	"strconv"
)

// completionsWire is OpenAI chat completions.
type completionsWire struct{}

func (completionsWire) stream(w *eventWriter, r reply) emitter {
	head := `data: {"id":` + quote(r.id) + `,"object":"chat.completion.chunk","created":` +
		strconv.FormatInt(r.created, 10) + `,"model":` + quote(r.model) + `,`
	return &completionsStream{w: w, head: head, call: -1}
}

func (completionsWire) document(r reply, blocks []block) any {
	message := map[string]any{"role": "assistant", "content": nil}
	var text, reasoning string
	var calls []any
	for _, b := range blocks {
		switch b.kind {
		case blockText:
			text += b.text
			message["content"] = text
		case blockReasoning:
			reasoning += b.text
			message["reasoning_content"] = reasoning
		case blockToolCall:
			calls = append(calls, map[string]any{
				"id": b.id, "type": "function", "function": map[string]any{"name": b.name, "arguments": b.text},
			})
			message["tool_calls"] = calls
		}
	}
	completion := map[string]any{
		"id": r.id, "object": "chat.completion", "created": r.created, "model": r.model,
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": r.finish, "logprobs": nil}},
		"usage":   completionsUsage(r.usage),
	}
	if r.usage.NanoAIU > 0 {
		completion["copilot_usage"] = copilotUsage(r.usage)
	}
	return completion
}

func (completionsWire) failure(f *Failure) any {
	var code any
	if f.Code != "" {
		code = f.Code
	}
	return map[string]any{"error": map[string]any{
		"message": f.Message, "type": cmp.Or(f.Type, openAIErrorType(f.Status)), "param": nil, "code": code,
	}}
}

func openAIErrorType(status int) string {
	switch {
	case status == 401:
		return "authentication_error"
	case status == 429:
		return "rate_limit_error"
	case status >= 500:
		return "server_error"
	default:
		return "invalid_request_error"
	}
}

func completionsUsage(u Usage) map[string]any {
	return map[string]any{
		"prompt_tokens": u.InputTokens, "completion_tokens": u.OutputTokens,
		"total_tokens":              u.InputTokens + u.OutputTokens,
		"prompt_tokens_details":     map[string]any{"cached_tokens": u.CachedTokens},
		"completion_tokens_details": map[string]any{"reasoning_tokens": u.ReasoningTokens},
	}
}

// copilotUsage is what GitHub adds about the bill.
func copilotUsage(u Usage) map[string]any {
	return map[string]any{"total_nano_aiu": u.NanoAIU, "token_details": []any{}}
}

// completionsStream writes chunks. A delta is assembled from strings, because
// bursts of tens of thousands are common in tests.
type completionsStream struct {
	w    *eventWriter
	head string
	kind blockKind
	call int // index of the tool call
}

func (s *completionsStream) chunk(delta, finish string) {
	s.w.write(s.head, `"choices":[{"index":0,"delta":`, delta, `,"finish_reason":`, finish, "}]}\n\n")
}

func (s *completionsStream) start() { s.chunk(`{"role":"assistant","content":""}`, "null") }

func (s *completionsStream) begin(b block) {
	s.kind = b.kind
	if b.kind != blockToolCall {
		return
	}
	s.call++
	s.chunk(`{"tool_calls":[{"index":`+strconv.Itoa(s.call)+`,"id":`+quote(b.id)+
		`,"type":"function","function":{"name":`+quote(b.name)+`,"arguments":""}}]}`, "null")
}

func (s *completionsStream) delta(text string) {
	switch s.kind {
	case blockText:
		s.chunk(`{"content":`+quote(text)+`}`, "null")
	case blockReasoning:
		s.chunk(`{"reasoning_content":`+quote(text)+`}`, "null")
	case blockToolCall:
		s.chunk(`{"tool_calls":[{"index":`+strconv.Itoa(s.call)+`,"function":{"arguments":`+quote(text)+`}}]}`, "null")
	}
}

func (s *completionsStream) end() {}

func (s *completionsStream) finish(finish string, usage Usage) {
	s.chunk("{}", quote(finish))
	s.w.write(s.head, `"choices":[],"usage":`)
	s.w.json(completionsUsage(usage))
	if usage.NanoAIU > 0 {
		s.w.write(`,"copilot_usage":`)
		s.w.json(copilotUsage(usage))
	}
	s.w.write("}\n\ndata: [DONE]\n\n")
}
