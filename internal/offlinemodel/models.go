package offlinemodel

import (
	"cmp"
	"maps"
)

// DefaultModel is offered when a script names no models. Rules answer requests for any model, listed or not.
const DefaultModel = "offline-model"

func models(script *Script) []Model {
	if len(script.Models) == 0 {
		return []Model{{ID: DefaultModel}}
	}
	return script.Models
}

// modelList is the answer to GET /models. It holds what OpenAI's list does and
// what GitHub's adds to it, so that one answer suits both.
func modelList(script *Script) map[string]any {
	data := []any{}
	for _, model := range models(script) {
		data = append(data, model.document())
	}
	return map[string]any{"object": "list", "data": data}
}

func (m Model) document() map[string]any {
	limits := map[string]any{
		"max_context_window_tokens": cmp.Or(m.ContextTokens, 200_000),
		"max_prompt_tokens":         cmp.Or(m.PromptTokens, 128_000),
		"max_output_tokens":         cmp.Or(m.OutputTokens, 64_000),
	}
	supports := map[string]any{
		"streaming": true, "tool_calls": true, "parallel_tool_calls": true, "vision": !m.NoVision,
	}
	if len(m.ReasoningEfforts) > 0 {
		supports["reasoning_effort"] = m.ReasoningEfforts
	}
	document := map[string]any{
		"id": m.ID, "name": cmp.Or(m.Name, m.ID), "object": "model", "version": m.ID,
		"vendor": cmp.Or(m.Vendor, "offline"), "owned_by": cmp.Or(m.Vendor, "offline"), "created": 0,
		"model_picker_enabled": true, "preview": false, "policy": map[string]any{"state": "enabled"},
		"capabilities": map[string]any{
			"type": "chat", "object": "model_capabilities", "family": m.ID, "tokenizer": "o200k_base",
			"limits": limits, "supports": supports,
		},
	}
	if !m.NoVision {
		limits["vision"] = map[string]any{
			"max_prompt_images": 20, "max_prompt_image_size": 5 << 20,
			"supported_media_types": []string{"image/png", "image/jpeg", "image/gif", "image/webp"},
		}
	}
	if len(m.Endpoints) > 0 {
		document["supported_endpoints"] = m.Endpoints
	}
	maps.Copy(document, m.Extra)
	return document
}
