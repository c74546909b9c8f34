package offlinemodel

import "time"

// Script says how the model answers. Scripts come from YAML ([Parse], [Load])
// or are built in Go; both are validated when a server takes them.
type Script struct {
	// Models are offered by GET /models. Empty means one model, [DefaultModel].
	Models []Model `yaml:"models"`
	// Stream sets how streamed replies are cut up; a step can override it.
	Stream Pace `yaml:"stream"`
	// GitHub describes the accounts that GitHub's own API knows.
	GitHub GitHub `yaml:"github"`
	// Rules are tried in order; the first that matches answers.
	Rules []Rule `yaml:"rules"`
	// Default answers when no rule does. Without it such a request is refused with status 400 and a message that
	// describes the request.
	Default *Rule `yaml:"default"`
}

// Pace says how text is cut into deltas and how fast they follow each other.
type Pace struct {
	// ChunkSize is the number of characters in one delta; 0 means 24.
	ChunkSize int `yaml:"chunk_size"`
	// Delay is the pause after each delta. It applies to streamed replies only.
	Delay time.Duration `yaml:"delay"`
}

// Rule answers the requests that meet its conditions, either with a reply or
// with an error.
type Rule struct {
	// Name identifies the rule in captured requests and in messages.
	Name string `yaml:"name"`
	// When holds the conditions; all of them must hold.
	When When `yaml:"when"`
	// Times is how often the rule may be used; 0 means without limit.
	Times int `yaml:"times"`
	// WaitFor names a gate that must be released before anything is sent.
	WaitFor string `yaml:"wait_for"`
	// Delay passes before anything is sent.
	Delay time.Duration `yaml:"delay"`
	// Headers are added to the response.
	Headers map[string]string `yaml:"headers"`
	// Reply is what the model says, step by step.
	Reply []Step `yaml:"reply"`
	// Error refuses the request instead.
	Error *Failure `yaml:"error"`
	// FinishReason overrides why the reply ended: stop, length, tool_calls or
	// content_filter. It is translated for each wire API.
	FinishReason string `yaml:"finish_reason"`
	// Usage overrides the token counts, which are otherwise estimated.
	Usage *Usage `yaml:"usage"`
}

// When is a set of conditions. An absent condition always holds.
type When struct {
	// User is contained in what the user said. Alone, it holds only while that
	// message is news to the model; together with ToolResult it looks at the
	// prompt that the tool call came from.
	User string `yaml:"user"`
	// UserRegex matches what the user said, under the same terms as User. Its
	// groups are available to the reply as {{match.1}} and so on.
	UserRegex string `yaml:"user_regex"`
	// ToolResult holds when the result of a tool call is news to the model.
	ToolResult *ToolResultCondition `yaml:"tool_result"`
	// System is contained in the system prompt.
	System string `yaml:"system"`
	// Tools are all offered to the model.
	Tools []string `yaml:"tools"`
	// Model is the requested model.
	Model string `yaml:"model"`
	// API is the wire API the request came by.
	API API `yaml:"api"`
	// Path is the beginning of the request path, after the scope's prefix.
	Path string `yaml:"path"`
	// Header holds header names and their exact values.
	Header map[string]string `yaml:"header"`
	// Token is the bearer token or API key that came with the request.
	Token string `yaml:"token"`
	// Images is the least number of images among what is news to the model.
	Images int `yaml:"images"`
	// Turn is the number of the user's message in the conversation, from 1.
	Turn int `yaml:"turn"`
	// Streaming matches streamed requests, or requests for one JSON document.
	Streaming *bool `yaml:"streaming"`
	// Body is contained in the raw request body.
	Body string `yaml:"body"`
	// Not holds conditions of which not all may be met.
	Not *When `yaml:"not"`
}

// ToolResultCondition describes a tool result. An absent member always fits.
type ToolResultCondition struct {
	// Name is the tool that was called.
	Name string `yaml:"name"`
	// ID is the id of the call.
	ID string `yaml:"id"`
	// Contains is part of the result's text.
	Contains string `yaml:"contains"`
}

// Step is one thing the model does in a reply. Exactly one of Text, Reasoning,
// ToolCall, Wait, WaitFor, Hang and Drop is set.
type Step struct {
	// Text is the model's text.
	Text string `yaml:"text"`
	// Reasoning is thought by the model, where the wire API can carry it.
	Reasoning string `yaml:"reasoning"`
	// ToolCall asks for a tool. Several in one reply are parallel calls.
	ToolCall *ToolCall `yaml:"tool_call"`
	// Wait pauses the reply.
	Wait time.Duration `yaml:"wait"`
	// WaitFor pauses the reply until a gate is released.
	WaitFor string `yaml:"wait_for"`
	// Hang holds the request until the client goes away.
	Hang bool `yaml:"hang"`
	// Drop breaks the connection off.
	Drop bool `yaml:"drop"`

	// Repeat says a text or a thought that many times; {{n}} is the number of
	// the repetition, from 1.
	Repeat int `yaml:"repeat"`
	// ChunkSize overrides [Pace.ChunkSize].
	ChunkSize int `yaml:"chunk_size"`
	// Delay overrides [Pace.Delay].
	Delay time.Duration `yaml:"delay"`
}

// ToolCall is a tool call made by the model.
type ToolCall struct {
	// Name is the tool.
	Name string `yaml:"name"`
	// Arguments is normally a mapping. A string is sent as it stands, even when
	// it is not JSON, to see what a client makes of that.
	Arguments any `yaml:"arguments"`
	// ID identifies the call; left out, one is made up that is unique in the
	// scope.
	ID string `yaml:"id"`
}

// Failure is an error answer.
type Failure struct {
	// Status is the HTTP status.
	Status int `yaml:"status"`
	// Message is the text.
	Message string `yaml:"message"`
	// Code is the machine-readable code, such as user_weekly_rate_limited.
	Code string `yaml:"code"`
	// Type is the error's type; left out, it follows from the status.
	Type string `yaml:"type"`
	// RetryAfter becomes a retry-after header, in whole seconds.
	RetryAfter time.Duration `yaml:"retry_after"`
}

// Usage is the reported usage of a reply, in tokens.
type Usage struct {
	// InputTokens counts the prompt, cached tokens included.
	InputTokens int `yaml:"input_tokens"`
	// OutputTokens counts the reply, reasoning included.
	OutputTokens int `yaml:"output_tokens"`
	// CachedTokens is the part of the prompt that came from a cache.
	CachedTokens int `yaml:"cached_tokens"`
	// ReasoningTokens is the part of the reply that was reasoning.
	ReasoningTokens int `yaml:"reasoning_tokens"`
	// NanoAIU is what GitHub bills, in thousand millionths of an AI credit.
	// Only chat completions tell it; 0 is not told.
	NanoAIU int64 `yaml:"nano_aiu"`
}

// Model is one entry of GET /models.
type Model struct {
	// ID is what requests ask for.
	ID string `yaml:"id"`
	// Name is shown to people; left out, it is the id.
	Name string `yaml:"name"`
	// Vendor is who makes the model.
	Vendor string `yaml:"vendor"`
	// ContextTokens limits prompt and reply together; 0 means 200000.
	ContextTokens int `yaml:"context_tokens"`
	// PromptTokens limits the prompt; 0 means 128000.
	PromptTokens int `yaml:"prompt_tokens"`
	// OutputTokens limits the reply; 0 means 64000.
	OutputTokens int `yaml:"output_tokens"`
	// NoVision says that the model does not take images.
	NoVision bool `yaml:"no_vision"`
	// ReasoningEfforts are the efforts that can be chosen.
	ReasoningEfforts []string `yaml:"reasoning_efforts"`
	// Endpoints are the paths by which GitHub's API offers the model, such as
	// /responses; empty leaves the choice to the client.
	Endpoints []string `yaml:"endpoints"`
	// Extra is merged into the entry as it stands.
	Extra map[string]any `yaml:"extra"`
}

// GitHub describes what GitHub's own API answers.
type GitHub struct {
	// Users are the known accounts. Empty means that any token is good.
	Users []User `yaml:"users"`
}

// User is an account, known by its token.
type User struct {
	// Token is the bearer token; "*" stands for any other.
	Token string `yaml:"token"`
	// Login is the account's name.
	Login string `yaml:"login"`
	// Plan is the Copilot plan; left out, individual_pro.
	Plan string `yaml:"plan"`
	// NoMCP says that the account may not use MCP servers.
	NoMCP bool `yaml:"no_mcp"`
	// Quota holds quota snapshots by name, such as premium_interactions.
	Quota map[string]Quota `yaml:"quota"`
	// Extra is merged into the answer as it stands.
	Extra map[string]any `yaml:"extra"`
}

// Quota is what is left of an allowance.
type Quota struct {
	// Entitlement is the allowance; a negative one is unlimited.
	Entitlement int `yaml:"entitlement"`
	// PercentRemaining is what is left of it.
	PercentRemaining float64 `yaml:"percent_remaining"`
	// Overage counts what was used beyond it.
	Overage int `yaml:"overage"`
	// OveragePermitted allows more to be used.
	OveragePermitted bool `yaml:"overage_permitted"`
	// ResetDate is when it is renewed, as RFC 3339.
	ResetDate string `yaml:"reset_date"`
}
