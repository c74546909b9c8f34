package callback

import "encoding/json"

// PermissionPrompt describes a permission request: in the form for prompts or, if there is none, in its own form.
type PermissionPrompt struct {
	Kind                    string          `json:"kind"`
	FullCommandText         string          `json:"fullCommandText"`
	CommandIdentifiers      []string        `json:"commandIdentifiers"`
	CanOfferSessionApproval *bool           `json:"canOfferSessionApproval"`
	CanPersistApproval      *bool           `json:"canPersistApproval"`
	URL                     string          `json:"url"`
	ServerName              json.RawMessage `json:"serverName"`
	ToolName                json.RawMessage `json:"toolName"`
	Operation               json.RawMessage `json:"operation"`
	ExtensionName           json.RawMessage `json:"extensionName"`
	EnvironmentVariables    json.RawMessage `json:"environmentVariables"`
	ApprovalKey             json.RawMessage `json:"approvalKey"`
	Commands                []struct {
		Identifier string `json:"identifier"`
	} `json:"commands"`
}

// PermissionPromptOf parses the prompt of a permission request.
func PermissionPromptOf(p *Pending) (out PermissionPrompt, err error) {
	var data struct {
		PermissionRequest json.RawMessage `json:"permissionRequest"`
		PromptRequest     json.RawMessage `json:"promptRequest"`
	}
	if err := json.Unmarshal(p.Params, &data); err != nil {
		return PermissionPrompt{}, err
	}
	text := data.PromptRequest
	if len(text) == 0 || string(text) == "null" {
		text = data.PermissionRequest
	}
	err = json.Unmarshal(text, &out)
	for _, c := range out.Commands {
		out.CommandIdentifiers = append(out.CommandIdentifiers, c.Identifier)
	}
	return out, err
}
