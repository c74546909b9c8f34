package offlinemodel

import (
	"regexp"
	"slices"
	"strings"
)

// match decides whether a rule answers a request, and collects what its
// substitutions need.
func (c *condition) match(r *Request) (*values, bool) {
	found := &values{request: r, n: 1}
	w := c.when
	ok := c.matchUser(r, found) && c.matchToolResult(r, found) &&
		strings.Contains(r.System, w.System) &&
		offersAll(r.ToolNames(), w.Tools) &&
		(w.Model == "" || w.Model == r.Model) &&
		(w.API == "" || w.API == r.API) &&
		strings.HasPrefix(r.Path, w.Path) &&
		hasHeaders(r, w.Header) &&
		(w.Token == "" || w.Token == r.Token()) &&
		(w.Images == 0 || len(images(r.news())) >= w.Images) &&
		(w.Turn == 0 || w.Turn == r.Turn()) &&
		(w.Streaming == nil || *w.Streaming == r.Streaming) &&
		(w.Body == "" || strings.Contains(string(r.Body), w.Body))
	if !ok {
		return nil, false
	}
	if c.not != nil {
		if _, met := c.not.match(r); met {
			return nil, false
		}
	}
	return found, true
}

// condition is a When with its expression compiled.
type condition struct {
	when  *When
	regex *regexp.Regexp
	not   *condition
}

func compileCondition(w *When) *condition {
	c := &condition{when: w}
	if w.UserRegex != "" {
		c.regex = regexp.MustCompile(w.UserRegex) // validated
	}
	if w.Not != nil {
		c.not = compileCondition(w.Not)
	}
	return c
}

func (c *condition) matchUser(r *Request, found *values) bool {
	if c.when.User == "" && c.regex == nil {
		return true
	}
	if c.when.ToolResult == nil && !r.userSpokeLast() {
		return false
	}
	said := r.UserText()
	if !strings.Contains(said, c.when.User) {
		return false
	}
	if c.regex != nil {
		found.match = c.regex.FindStringSubmatch(said)
		return found.match != nil
	}
	return true
}

// userSpokeLast reports whether something the user said is news to the model.
func (r *Request) userSpokeLast() bool {
	return slices.ContainsFunc(r.news(), func(m Message) bool {
		return m.Role == RoleUser && m.words != ""
	})
}

func (c *condition) matchToolResult(r *Request, found *values) bool {
	want := c.when.ToolResult
	if want == nil {
		return true
	}
	for _, result := range r.ToolResults() {
		if (want.Name == "" || want.Name == result.ToolName) &&
			(want.ID == "" || want.ID == result.ToolCallID) &&
			strings.Contains(result.Text, want.Contains) {
			found.result = result.Text
			return true
		}
	}
	return false
}

func offersAll(offered, wanted []string) bool {
	for _, name := range wanted {
		if !slices.Contains(offered, name) {
			return false
		}
	}
	return true
}

func hasHeaders(r *Request, wanted map[string]string) bool {
	for name, value := range wanted {
		if !slices.Contains(r.Header.Values(name), value) {
			return false
		}
	}
	return true
}
