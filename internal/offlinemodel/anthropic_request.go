package offlinemodel

import "encoding/json"

type anthropicRequest struct {
	Model    string  `json:"model"`
	Stream   bool    `json:"stream"`
	System   content `json:"system"`
	Messages []struct {
		Role    string  `json:"role"`
		Content content `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
	} `json:"tools"`
}

func (r *Request) decodeAnthropic() error {
	var body anthropicRequest
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return err
	}
	r.Model, r.Streaming = body.Model, body.Stream
	for _, block := range body.System {
		r.addSystem(block.Text)
	}
	for _, tool := range body.Tools {
		r.Tools = append(r.Tools, Tool{tool.Name, tool.Description, tool.InputSchema})
	}
	for _, m := range body.Messages {
		switch m.Role {
		case "assistant":
			r.addAnthropicAssistant(m.Content)
		case "system":
			r.addSystem(m.Content.text())
		default:
			r.addAnthropicUser(m.Content)
		}
	}
	return nil
}

func (r *Request) addAnthropicAssistant(blocks content) {
	message := Message{Role: RoleAssistant}
	for _, block := range blocks {
		switch block.Type {
		case "text":
			message.Text = joinLines(message.Text, block.Text)
		case "thinking":
			message.Reasoning = joinLines(message.Reasoning, block.Thinking)
		case "tool_use":
			message.ToolCalls = append(message.ToolCalls, CalledTool{block.ID, block.Name, string(block.Input)})
		}
	}
	r.addAssistant(message)
}

// addAnthropicUser takes tool results out of the user message that carries
// them in this wire API.
func (r *Request) addAnthropicUser(blocks content) {
	var own content
	for _, block := range blocks {
		if block.Type != "tool_result" {
			own = append(own, block)
			continue
		}
		r.Messages = append(r.Messages, Message{
			Role: RoleTool, ToolCallID: block.ToolUseID, ToolError: block.IsError,
			Text: block.Content.text(), Images: block.Content.images(),
		})
	}
	if len(own) > 0 {
		r.Messages = append(r.Messages, own.userMessage())
	}
}
