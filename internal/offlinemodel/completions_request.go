package offlinemodel

import "encoding/json"

type completionsRequest struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role             string  `json:"role"`
		Content          content `json:"content"`
		ReasoningContent string  `json:"reasoning_content"`
		ReasoningText    string  `json:"reasoning_text"`
		ToolCallID       string  `json:"tool_call_id"`
		ToolCalls        []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
}

func (r *Request) decodeCompletions() error {
	var body completionsRequest
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return err
	}
	r.Model, r.Streaming = body.Model, body.Stream
	for _, tool := range body.Tools {
		r.Tools = append(r.Tools, Tool(tool.Function))
	}
	for _, m := range body.Messages {
		message := Message{Text: m.Content.text(), Images: m.Content.images()}
		switch m.Role {
		case "system", "developer":
			r.addSystem(message.Text)
		case "assistant":
			message.Role = RoleAssistant
			message.Reasoning = joinLines(m.ReasoningContent, m.ReasoningText)
			for _, call := range m.ToolCalls {
				message.ToolCalls = append(message.ToolCalls,
					CalledTool{call.ID, call.Function.Name, call.Function.Arguments})
			}
			r.addAssistant(message)
		case "tool":
			message.Role, message.ToolCallID = RoleTool, m.ToolCallID
			r.Messages = append(r.Messages, message)
		default:
			r.Messages = append(r.Messages, m.Content.userMessage())
		}
	}
	return nil
}
