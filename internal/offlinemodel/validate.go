package offlinemodel

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
)

// maxRepeat bounds the deltas of one step; far above any real burst.
const maxRepeat = 10_000_000

// validate checks what the types cannot express. It stops at the first problem.
func (s *Script) validate() error {
	for i, model := range s.Models {
		if model.ID == "" {
			return &invalid{fmt.Sprintf("$.models[%d]", i), "a model needs an id"}
		}
	}
	for i, user := range s.GitHub.Users {
		if user.Token == "" {
			return &invalid{fmt.Sprintf("$.github.users[%d]", i), `a user needs a token; "*" stands for any`}
		}
	}
	if s.Stream.ChunkSize < 0 || s.Stream.Delay < 0 {
		return &invalid{"$.stream", "chunk_size and delay must not be negative"}
	}
	for i := range s.Rules {
		if err := s.Rules[i].validate(fmt.Sprintf("$.rules[%d]", i)); err != nil {
			return err
		}
	}
	if s.Default == nil {
		return nil
	}
	if !s.Default.When.empty() || s.Default.Times != 0 {
		return &invalid{"$.default", "the default reply must not have when or times: it answers all other requests"}
	}
	return s.Default.validate("$.default")
}

func (r *Rule) validate(path string) error {
	switch {
	case len(r.Reply) == 0 && r.Error == nil:
		return &invalid{path, "a rule needs a reply or an error"}
	case len(r.Reply) > 0 && r.Error != nil:
		return &invalid{path, "a rule has either a reply or an error, not both"}
	case r.Times < 0:
		return &invalid{path, "times must not be negative"}
	case r.Delay < 0:
		return &invalid{path, "delay must not be negative"}
	case r.FinishReason != "" && !slices.Contains(finishReasons, r.FinishReason):
		return &invalid{path + ".finish_reason",
			fmt.Sprintf("unknown finish reason %q, want one of %q", r.FinishReason, finishReasons)}
	}
	if err := r.When.validate(path + ".when"); err != nil {
		return err
	}
	for i := range r.Reply {
		if err := r.Reply[i].validate(fmt.Sprintf("%s.reply[%d]", path, i)); err != nil {
			return err
		}
	}
	if r.Error != nil && (r.Error.Status < 400 || r.Error.Status > 599) {
		return &invalid{path + ".error", fmt.Sprintf("status must be 400 to 599, not %d", r.Error.Status)}
	}
	for name := range r.Headers {
		if http.CanonicalHeaderKey(name) == "Content-Type" {
			return &invalid{path + ".headers", "content-type cannot be set: the wire API determines it"}
		}
	}
	return nil
}

func (w *When) validate(path string) error {
	if w.UserRegex != "" {
		if _, err := regexp.Compile(w.UserRegex); err != nil {
			return &invalid{path + ".user_regex", err.Error()}
		}
	}
	if w.API != "" && !slices.Contains(modelAPIs, w.API) {
		return &invalid{path + ".api", fmt.Sprintf("unknown api %q, want one of %q", w.API, modelAPIs)}
	}
	if w.Images < 0 || w.Turn < 0 {
		return &invalid{path, "images and turn must not be negative"}
	}
	if w.Not == nil {
		return nil
	}
	if w.Not.empty() {
		return &invalid{path + ".not", "needs at least one condition"}
	}
	return w.Not.validate(path + ".not")
}

// empty reports whether there is no condition.
func (w *When) empty() bool {
	return w.User == "" && w.UserRegex == "" && w.ToolResult == nil && w.System == "" && len(w.Tools) == 0 &&
		w.Model == "" && w.API == "" && w.Path == "" && len(w.Header) == 0 && w.Token == "" && w.Images == 0 &&
		w.Turn == 0 && w.Streaming == nil && w.Body == "" && w.Not == nil
}

func (s *Step) validate(path string) error {
	kinds := 0
	for _, set := range []bool{
		s.Text != "", s.Reasoning != "", s.ToolCall != nil, s.Wait != 0, s.WaitFor != "", s.Hang, s.Drop,
	} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return &invalid{path, "a step has exactly one of text, reasoning, tool_call, wait, wait_for, hang and drop"}
	}
	if s.Repeat < 0 || s.Repeat > maxRepeat || s.ChunkSize < 0 || s.Delay < 0 || s.Wait < 0 {
		return &invalid{path,
			fmt.Sprintf("repeat (at most %d), chunk_size, delay and wait must not be negative", maxRepeat)}
	}
	spoken := s.Text != "" || s.Reasoning != ""
	if s.Repeat > 0 && !spoken {
		return &invalid{path, "only text and reasoning can be repeated"}
	}
	if (s.ChunkSize > 0 || s.Delay > 0) && !spoken && s.ToolCall == nil {
		return &invalid{path, "chunk_size and delay belong to text, reasoning and tool_call"}
	}
	if s.ToolCall != nil {
		return s.ToolCall.validate(path + ".tool_call")
	}
	for _, text := range []string{s.Text, s.Reasoning} {
		if err := checkText(text); err != nil {
			return &invalid{path, err.Error()}
		}
	}
	return nil
}

func (t *ToolCall) validate(path string) error {
	if t.Name == "" {
		return &invalid{path, "a tool call needs a name"}
	}
	if err := checkArguments(t.Arguments); err != nil {
		return &invalid{path, err.Error()}
	}
	return nil
}
