// Package answer makes the messages that answer callbacks.
package answer

import (
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// MCPHeaders answers with headers; nil has none.
func MCPHeaders(headers map[string]string) *cliv1.McpHeadersHandlePendingHeadersRefreshRequest {
	answer := new(cliv1.McpHeadersHandlePendingHeadersRefreshRequest)
	if headers == nil {
		answer.Variant = &cliv1.McpHeadersHandlePendingHeadersRefreshRequest_None{
			None: &cliv1.McpHeadersHandlePendingHeadersRefreshRequestNone{},
		}
	} else {
		answer.Variant = &cliv1.McpHeadersHandlePendingHeadersRefreshRequest_Headers{
			Headers: &cliv1.McpHeadersHandlePendingHeadersRefreshRequestHeaders{Headers: headers},
		}
	}
	return answer
}

// QueuedCommand says whether a queued command was executed.
func QueuedCommand(handled bool) *cliv1.QueuedCommandResult {
	if handled {
		return &cliv1.QueuedCommandResult{Variant: &cliv1.QueuedCommandResult_True{True: &cliv1.QueuedCommandHandled{}}}
	}
	return &cliv1.QueuedCommandResult{Variant: &cliv1.QueuedCommandResult_False{
		False: &cliv1.QueuedCommandNotHandled{},
	}}
}

// SystemMessage answers with the sections of a request, of which some have other texts.
func SystemMessage(
	req *cliv1.CallbackSystemMessageServiceTransformRequest, texts map[string]string,
) *cliv1.CallbackSystemMessageServiceTransformResponse {
	sections := make(map[string]*cliv1.SystemMessageSectionText, len(req.GetSections()))
	for name, section := range req.GetSections() {
		sections[name] = section
	}
	for name, text := range texts {
		sections[name] = &cliv1.SystemMessageSectionText{Content: text}
	}
	return &cliv1.CallbackSystemMessageServiceTransformResponse{Sections: sections}
}

// GitHubToken answers with a token that is good for seconds; an empty token refuses.
func GitHubToken(token string, seconds int64) *cliv1.CallbackGitHubTokenServiceGetTokenResponse {
	out := new(cliv1.CallbackGitHubTokenServiceGetTokenResponse)
	if token == "" {
		out.Variant = &cliv1.CallbackGitHubTokenServiceGetTokenResponse_Cancelled{
			Cancelled: &cliv1.CallbackGitHubTokenServiceGetTokenResponseCancelled{},
		}
	} else {
		out.Variant = &cliv1.CallbackGitHubTokenServiceGetTokenResponse_Token{
			Token: &cliv1.CallbackGitHubTokenServiceGetTokenResponseToken{AccessToken: token, ExpiresIn: seconds},
		}
	}
	return out
}
