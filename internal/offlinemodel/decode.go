package offlinemodel

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// decode fills the parsed part of a model request from its body. Unknown
// members and parts are passed over: the request is the client's business.
func (r *Request) decode() error {
	var err error
	switch r.API {
	case APICompletions:
		err = r.decodeCompletions()
	case APIResponses:
		err = r.decodeResponses()
	case APIAnthropic:
		err = r.decodeAnthropic()
	}
	if err != nil {
		return fmt.Errorf("request body: %w", err)
	}
	r.nameToolResults()
	return nil
}

// nameToolResults finds for each tool result the tool that was called.
func (r *Request) nameToolResults() {
	names := map[string]string{}
	for i := range r.Messages {
		message := &r.Messages[i]
		for _, call := range message.ToolCalls {
			names[call.ID] = call.Name
		}
		if message.Role == RoleTool {
			message.ToolName = names[message.ToolCallID]
		}
	}
}

func (r *Request) addSystem(text string) {
	if r.System != "" && text != "" {
		r.System += "\n\n"
	}
	r.System += text
}

// addAssistant joins what belongs to one answer of the model, which some wire
// APIs send as several items.
func (r *Request) addAssistant(message Message) {
	if last := len(r.Messages) - 1; last >= 0 && r.Messages[last].Role == RoleAssistant {
		into := &r.Messages[last]
		into.Text = joinLines(into.Text, message.Text)
		into.Reasoning = joinLines(into.Reasoning, message.Reasoning)
		into.ToolCalls = append(into.ToolCalls, message.ToolCalls...)
		return
	}
	r.Messages = append(r.Messages, message)
}

// part is one part of a message, in any of the wire APIs.
type part struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ImageURL  json.RawMessage `json:"image_url"`
	Source    *imageSource    `json:"source"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   content         `json:"content"`
	IsError   bool            `json:"is_error"`
}

type imageSource struct {
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
	URL       string `json:"url"`
}

// content is a string or a list of parts.
type content []part

func (c *content) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		var s string
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		*c = content{{Type: "text", Text: s}}
		return nil
	}
	if len(text) > 0 && text[0] == '{' {
		var single part
		if err := json.Unmarshal(text, &single); err != nil {
			return err
		}
		*c = content{single}
		return nil
	}
	return json.Unmarshal(text, (*[]part)(c))
}

func (c content) text() string {
	var text string
	for _, p := range c {
		text = joinLines(text, p.Text)
	}
	return text
}

// words is the text without what the CLI wraps around the parts.
func (c content) words() string {
	var words string
	for _, p := range c {
		words = joinLines(words, stripContext(p.Text))
	}
	return words
}

// userMessage makes a message of the user.
func (c content) userMessage() Message {
	return Message{Role: RoleUser, Text: c.text(), Images: c.images(), words: c.words()}
}

func (c content) images() []Image {
	var found []Image
	for _, p := range c {
		if image, ok := p.image(); ok {
			found = append(found, image)
		}
	}
	return found
}

func (p *part) image() (Image, bool) {
	if p.Source != nil {
		if p.Source.URL != "" {
			return Image{URL: p.Source.URL}, true
		}
		data, err := base64.StdEncoding.DecodeString(p.Source.Data)
		return Image{MediaType: p.Source.MediaType, Data: data}, err == nil
	}
	if len(p.ImageURL) == 0 {
		return Image{}, false
	}
	var url string
	if json.Unmarshal(p.ImageURL, &url) != nil {
		var object struct {
			URL string `json:"url"`
		}
		if json.Unmarshal(p.ImageURL, &object) != nil {
			return Image{}, false
		}
		url = object.URL
	}
	return imageFromURL(url), true
}

func imageFromURL(url string) Image {
	rest, found := strings.CutPrefix(url, "data:")
	if !found {
		return Image{URL: url}
	}
	mediaType, encoded, found := strings.Cut(rest, ";base64,")
	if !found {
		return Image{URL: url}
	}
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return Image{URL: url}
	}
	return Image{MediaType: mediaType, Data: data}
}

func joinLines(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}
