package offlinemodel

import (
	"fmt"
	"strconv"
)

// responsesWire is OpenAI responses.
type responsesWire struct{}

func (responsesWire) stream(w *eventWriter, r reply) emitter {
	return &responsesStream{w: w, reply: r}
}

func (responsesWire) document(r reply, blocks []block) any {
	items := make([]any, len(blocks))
	for i, b := range blocks {
		items[i] = responsesOutput(r, i, b, "completed")
	}
	return responsesEnvelope(r, items, true)
}

func (responsesWire) failure(f *Failure) any { return completionsWire{}.failure(f) }

// responsesEnvelope is the response object, at its end or before it.
func responsesEnvelope(r reply, items []any, done bool) map[string]any {
	envelope := map[string]any{
		"id": r.id, "object": "response", "created_at": r.created, "model": r.model, "status": "in_progress",
		"output": items, "error": nil, "incomplete_details": nil, "usage": nil,
		"parallel_tool_calls": true, "tool_choice": "auto", "tools": []any{}, "store": false,
		"metadata": map[string]any{},
	}
	if !done {
		return envelope
	}
	envelope["status"] = "completed"
	switch r.finish {
	case finishLength:
		envelope["status"] = "incomplete"
		envelope["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	case finishFilter:
		envelope["status"] = "incomplete"
		envelope["incomplete_details"] = map[string]any{"reason": "content_filter"}
	}
	u := r.usage
	envelope["usage"] = map[string]any{
		"input_tokens": u.InputTokens, "output_tokens": u.OutputTokens, "total_tokens": u.InputTokens + u.OutputTokens,
		"input_tokens_details":  map[string]any{"cached_tokens": u.CachedTokens},
		"output_tokens_details": map[string]any{"reasoning_tokens": u.ReasoningTokens},
	}
	return envelope
}

// responsesOutput is one output item.
func responsesOutput(r reply, index int, b block, status string) map[string]any {
	id := responsesItemID(r, index, b)
	switch b.kind {
	case blockReasoning:
		summary := []any{}
		if status == "completed" {
			summary = append(summary, map[string]any{"type": "summary_text", "text": b.text})
		}
		return map[string]any{"type": "reasoning", "id": id, "summary": summary, "encrypted_content": thinkingSignature}
	case blockToolCall:
		return map[string]any{
			"type": "function_call", "id": id, "call_id": b.id, "name": b.name, "arguments": b.text, "status": status,
		}
	default:
		contents := []any{}
		if status == "completed" {
			contents = append(contents, responsesText(b.text))
		}
		return map[string]any{"type": "message", "id": id, "role": "assistant", "status": status, "content": contents}
	}
}

func responsesText(text string) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}}
}

func responsesItemID(r reply, index int, b block) string {
	prefix := [...]string{blockText: "msg", blockReasoning: "rs", blockToolCall: "fc"}[b.kind]
	return fmt.Sprintf("%s_%s_%d", prefix, r.id, index)
}

type responsesStream struct {
	w        *eventWriter
	reply    reply
	sequence int
	items    []any
	current  block
	text     []byte
	name     string // of the delta event of the current block
	middle   string // of a delta event, between sequence number and text
}

// event writes an event with its type and sequence number filled in.
func (s *responsesStream) event(name string, data map[string]any) {
	data["type"] = name
	data["sequence_number"] = s.sequence
	s.sequence++
	s.w.event(name, data)
}

// about starts the data of an event about the current item.
func (s *responsesStream) about() map[string]any {
	return map[string]any{"item_id": responsesItemID(s.reply, len(s.items), s.current), "output_index": len(s.items)}
}

func (s *responsesStream) start() {
	s.event("response.created", map[string]any{"response": responsesEnvelope(s.reply, []any{}, false)})
	s.event("response.in_progress", map[string]any{"response": responsesEnvelope(s.reply, []any{}, false)})
}

func (s *responsesStream) begin(b block) {
	s.current, s.text = b, s.text[:0]
	index := len(s.items)
	s.event("response.output_item.added", map[string]any{
		"output_index": index, "item": responsesOutput(s.reply, index, b, "in_progress"),
	})
	extra := ""
	switch b.kind {
	case blockText:
		part := s.about()
		part["content_index"], part["part"] = 0, responsesText("")
		s.event("response.content_part.added", part)
		s.name, extra = "response.output_text.delta", `,"content_index":0,"logprobs":[]`
	case blockReasoning:
		part := s.about()
		part["summary_index"], part["part"] = 0, map[string]any{"type": "summary_text", "text": ""}
		s.event("response.reasoning_summary_part.added", part)
		s.name, extra = "response.reasoning_summary_text.delta", `,"summary_index":0`
	case blockToolCall:
		s.name = "response.function_call_arguments.delta"
	}
	s.middle = `,"item_id":` + quote(responsesItemID(s.reply, index, b)) + `,"output_index":` + strconv.Itoa(index) +
		extra + `,"delta":`
}

func (s *responsesStream) delta(text string) {
	s.text = append(s.text, text...)
	s.w.write("event: ", s.name, "\ndata: {\"type\":\"", s.name, `","sequence_number":`, strconv.Itoa(s.sequence),
		s.middle, quote(text), "}\n\n")
	s.sequence++
}

func (s *responsesStream) end() {
	s.current.text = string(s.text)
	done := s.about()
	switch s.current.kind {
	case blockText:
		done["content_index"], done["text"], done["logprobs"] = 0, s.current.text, []any{}
		s.event("response.output_text.done", done)
		part := s.about()
		part["content_index"], part["part"] = 0, responsesText(s.current.text)
		s.event("response.content_part.done", part)
	case blockReasoning:
		done["summary_index"], done["text"] = 0, s.current.text
		s.event("response.reasoning_summary_text.done", done)
		part := s.about()
		part["summary_index"], part["part"] = 0, map[string]any{"type": "summary_text", "text": s.current.text}
		s.event("response.reasoning_summary_part.done", part)
	case blockToolCall:
		done["arguments"] = s.current.text
		s.event("response.function_call_arguments.done", done)
	}
	item := responsesOutput(s.reply, len(s.items), s.current, "completed")
	s.event("response.output_item.done", map[string]any{"output_index": len(s.items), "item": item})
	s.items = append(s.items, item)
}

func (s *responsesStream) finish(finish string, usage Usage) {
	s.reply.finish, s.reply.usage = finish, usage
	name := "response.completed"
	if finish == finishLength || finish == finishFilter {
		name = "response.incomplete"
	}
	items := s.items
	if items == nil {
		items = []any{}
	}
	s.event(name, map[string]any{"response": responsesEnvelope(s.reply, items, true)})
}
