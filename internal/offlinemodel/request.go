package offlinemodel

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// API names the protocol by which a request came.
type API string

// The wire APIs of model requests, and what else a client may ask for.
const (
	// APICompletions is POST …/chat/completions, Azure's paths included.
	APICompletions API = "openai-completions"
	// APIResponses is POST …/responses, Azure's paths included.
	APIResponses API = "openai-responses"
	// APIAnthropic is POST …/messages.
	APIAnthropic API = "anthropic"
	// APIModels is GET …/models.
	APIModels API = "models"
	// APIGitHub is the rest of GitHub's own API.
	APIGitHub API = "github"
	// APIUnknown is everything else; it is answered with 404.
	APIUnknown API = "unknown"
)

// modelAPIs are those a rule can answer.
var modelAPIs = []API{APICompletions, APIResponses, APIAnthropic}

// Outcome says what became of a request.
type Outcome string

// The outcomes.
const (
	// OutcomePending means that the answer is not complete yet.
	OutcomePending Outcome = "pending"
	// OutcomeAnswered means that it was answered in full, be it with an error.
	OutcomeAnswered Outcome = "answered"
	// OutcomeClientGone means that the client went away before the end.
	OutcomeClientGone Outcome = "client_gone"
	// OutcomeDropped means that the script broke the connection off, or that
	// the scope or server was closed.
	OutcomeDropped Outcome = "dropped"
)

// Request is a captured request. It shares its data: do not change it.
type Request struct {
	// Number counts the requests of a scope, from 1.
	Number int `json:"number"`
	// Scope is the scope's name, empty at the root.
	Scope string `json:"scope,omitempty"`
	// At is when the request had arrived.
	At time.Time `json:"at"`
	// Method, Path and Query belong to the HTTP request. Path does not contain the scope's prefix.
	Method string `json:"method"`
	Path   string `json:"path"`
	Query  string `json:"query,omitempty"`
	// API is the protocol it came by.
	API API `json:"api"`
	// Header holds the request's headers, credentials included.
	Header http.Header `json:"header"`
	// Body is the body as it came.
	Body []byte `json:"-"`

	// Model is the model asked for. This and what follows, to Streaming, is set
	// for model requests only.
	Model string `json:"model,omitempty"`
	// System is the system prompt, its parts joined by an empty line.
	System string `json:"system,omitempty"`
	// Messages is the conversation without the system prompt.
	Messages []Message `json:"messages,omitempty"`
	// Tools are those offered to the model.
	Tools []Tool `json:"-"`
	// Streaming reports whether the request wants a stream of events.
	Streaming bool `json:"streaming"`

	// Rule is the name of the rule that answered, or its place: "rule 3".
	Rule string `json:"rule,omitempty"`
	// Status is the HTTP status of the answer, 0 while there is none.
	Status int `json:"status,omitempty"`
	// Outcome is what has become of the request so far.
	Outcome Outcome `json:"outcome"`
}

// Role says whose message it is.
type Role string

// The roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one message of a conversation, the same for all wire APIs.
type Message struct {
	// Role is whose it is.
	Role Role `json:"role"`
	// Text is its text, parts joined by a line break.
	Text string `json:"text"`
	// words is the text without what the CLI wraps around it.
	words string
	// Reasoning is what an assistant message gave as its thoughts.
	Reasoning string `json:"reasoning,omitempty"`
	// ToolCalls are those an assistant message made.
	ToolCalls []CalledTool `json:"tool_calls,omitempty"`
	// ToolCallID tells which call a tool message answers.
	ToolCallID string `json:"tool_call_id,omitempty"`
	// ToolName is the tool that was called.
	ToolName string `json:"tool_name,omitempty"`
	// ToolError is set where the wire API marks a result as failed.
	ToolError bool `json:"tool_error,omitempty"`
	// Images are those it carries.
	Images []Image `json:"images,omitempty"`
}

// CalledTool is a tool call found in a conversation.
type CalledTool struct {
	// ID identifies the call.
	ID string `json:"id"`
	// Name is the tool.
	Name string `json:"name"`
	// Arguments is the JSON text of the arguments.
	Arguments string `json:"arguments"`
}

// Tool is a tool offered to the model.
type Tool struct {
	// Name is what calls use.
	Name string `json:"name"`
	// Description is for the model.
	Description string `json:"description,omitempty"`
	// Parameters is the JSON schema of the arguments.
	Parameters json.RawMessage `json:"parameters,omitempty"`
}

// Image is an image part of a message.
type Image struct {
	// MediaType is known for images sent in the request.
	MediaType string `json:"media_type,omitempty"`
	// Data is the image itself.
	Data []byte `json:"data,omitempty"`
	// URL is set instead for images that are only referred to.
	URL string `json:"url,omitempty"`
}

// IsModelRequest tells requests that rules answer from all others.
func (r *Request) IsModelRequest() bool {
	return r.API == APICompletions || r.API == APIResponses || r.API == APIAnthropic
}

// ToolNames are the names of the tools offered to the model, in order.
func (r *Request) ToolNames() []string {
	names := make([]string, len(r.Tools))
	for i, tool := range r.Tools {
		names[i] = tool.Name
	}
	return names
}

// UserText is what the user said last, without what the CLI wraps around it.
func (r *Request) UserText() string {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		if r.Messages[i].Role == RoleUser {
			if r.Messages[i].words != "" {
				return r.Messages[i].words
			}
		}
	}
	return ""
}

// ToolResults are the results that are news to the model: those after its last
// message.
func (r *Request) ToolResults() []Message {
	var results []Message
	for _, message := range r.news() {
		if message.Role == RoleTool {
			results = append(results, message)
		}
	}
	return results
}

// Images are all images of the conversation.
func (r *Request) Images() []Image { return images(r.Messages) }

// Turn is how many messages of the user the conversation holds.
func (r *Request) Turn() int {
	turns := 0
	for _, message := range r.Messages {
		if message.Role == RoleUser && message.words != "" {
			turns++
		}
	}
	return turns
}

// Token is the bearer token or API key that came with the request.
func (r *Request) Token() string { return credential(r.Header) }

// news is what came after the model's last message.
func (r *Request) news() []Message {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		if r.Messages[i].Role == RoleAssistant {
			return r.Messages[i+1:]
		}
	}
	return r.Messages
}

func images(messages []Message) []Image {
	var found []Image
	for _, message := range messages {
		found = append(found, message.Images...)
	}
	return found
}

func credential(header http.Header) string {
	for _, name := range []string{"x-api-key", "api-key"} {
		if key := header.Get(name); key != "" {
			return key
		}
	}
	scheme, token, found := strings.Cut(header.Get("authorization"), " ")
	if found && (strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "token")) {
		return token
	}
	return ""
}

// contextStart and contextEnd find the elements that the CLI puts before and
// after the user's own words, such as <current_datetime> and <tagged_files>.
// Their names have an underscore; new ones come with every version.
var (
	contextStart = regexp.MustCompile(`^<([a-z]+(?:_[a-z]+)+)>`)
	contextEnd   = regexp.MustCompile(`</([a-z]+(?:_[a-z]+)+)>$`)
)

// stripContext takes away what the CLI wraps around the user's words.
func stripContext(text string) string {
	for {
		text = strings.TrimSpace(text)
		if tag := contextStart.FindStringSubmatch(text); tag != nil {
			if _, after, closed := strings.Cut(text, "</"+tag[1]+">"); closed {
				text = after
				continue
			}
		}
		if tag := contextEnd.FindStringSubmatch(text); tag != nil {
			if at := strings.LastIndex(text, "<"+tag[1]+">"); at >= 0 {
				text = text[:at]
				continue
			}
		}
		return text
	}
}
