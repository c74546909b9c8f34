package offlinemodel

import "encoding/json"

type responsesRequest struct {
	Model        string         `json:"model"`
	Stream       bool           `json:"stream"`
	Instructions string         `json:"instructions"`
	Input        responsesInput `json:"input"`
	Tools        []Tool         `json:"tools"`
}

// responsesItem is an item of the input: a message, a call or a result.
type responsesItem struct {
	Type      string  `json:"type"`
	Role      string  `json:"role"`
	Content   content `json:"content"`
	Summary   content `json:"summary"`
	CallID    string  `json:"call_id"`
	Name      string  `json:"name"`
	Arguments string  `json:"arguments"`
	Input     string  `json:"input"`
	Output    content `json:"output"`
}

// responsesInput is a string or a list of items.
type responsesInput []responsesItem

func (in *responsesInput) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		var c content
		if err := c.UnmarshalJSON(text); err != nil {
			return err
		}
		*in = responsesInput{{Type: "message", Role: "user", Content: c}}
		return nil
	}
	return json.Unmarshal(text, (*[]responsesItem)(in))
}

func (r *Request) decodeResponses() error {
	var body responsesRequest
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return err
	}
	r.Model, r.Streaming, r.Tools = body.Model, body.Stream, body.Tools
	r.addSystem(body.Instructions)
	for _, item := range body.Input {
		r.addItem(item)
	}
	return nil
}

func (r *Request) addItem(item responsesItem) {
	switch item.Type {
	case "function_call":
		r.addAssistant(Message{Role: RoleAssistant, ToolCalls: []CalledTool{{item.CallID, item.Name, item.Arguments}}})
	case "custom_tool_call":
		r.addAssistant(Message{Role: RoleAssistant, ToolCalls: []CalledTool{{item.CallID, item.Name, item.Input}}})
	case "function_call_output", "custom_tool_call_output":
		r.Messages = append(r.Messages, Message{
			Role: RoleTool, ToolCallID: item.CallID, Text: item.Output.text(), Images: item.Output.images(),
		})
	case "reasoning":
		r.addAssistant(Message{Role: RoleAssistant, Reasoning: item.Summary.text()})
	case "message", "":
		switch item.Role {
		case "system", "developer":
			r.addSystem(item.Content.text())
		case "assistant":
			r.addAssistant(Message{Role: RoleAssistant, Text: item.Content.text()})
		default:
			r.Messages = append(r.Messages, item.Content.userMessage())
		}
	}
}
