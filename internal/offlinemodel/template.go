package offlinemodel

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A template is text with substitutions: {{user}}, {{model}}, {{tool_result}},
// {{tool_result.NAME}}, {{match.N}} and {{n}}. There is no logic in it, on
// purpose: a script is to be read, and rules already choose between answers.
type template []segment

// segment is either literal text or a substitution.
type segment struct {
	literal string
	name    string // what to substitute; empty for literal text
	arg     string // the part after the dot
}

// values is what substitutions draw from.
type values struct {
	request *Request
	match   []string // groups of the rule's user_regex
	result  string   // the tool result that met the rule's condition
	n       int      // repetition, from 1
}

var substitution = regexp.MustCompile(`\{\{\s*([a-z_]+)(?:\.([^{}\s]+))?\s*\}\}`)

func parseTemplate(text string) (template, error) {
	var parsed template
	rest := text
	for {
		at := substitution.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		if at[0] > 0 {
			parsed = append(parsed, segment{literal: rest[:at[0]]})
		}
		sub := segment{name: rest[at[2]:at[3]]}
		if at[4] >= 0 {
			sub.arg = rest[at[4]:at[5]]
		}
		if err := sub.check(); err != nil {
			return nil, err
		}
		parsed = append(parsed, sub)
		rest = rest[at[1]:]
	}
	if rest != "" {
		parsed = append(parsed, segment{literal: rest})
	}
	return parsed, nil
}

func (s segment) check() error {
	switch s.name {
	case "user", "model", "n":
		if s.arg == "" {
			return nil
		}
	case "tool_result":
		return nil
	case "match":
		if group, err := strconv.Atoi(s.arg); err == nil && group >= 0 {
			return nil
		}
	}
	return fmt.Errorf("unknown substitution {{%s}}, want user, model, tool_result, tool_result.NAME, match.N or n",
		strings.TrimSuffix(s.name+"."+s.arg, "."))
}

// constant reports whether the text is the same for every repetition.
func (t template) constant() bool {
	for _, s := range t {
		if s.name == "n" {
			return false
		}
	}
	return true
}

func (t template) render(v *values) string {
	if len(t) == 1 && t[0].name == "" {
		return t[0].literal
	}
	var out strings.Builder
	for _, s := range t {
		switch s.name {
		case "":
			out.WriteString(s.literal)
		case "user":
			out.WriteString(v.request.UserText())
		case "model":
			out.WriteString(v.request.Model)
		case "n":
			out.WriteString(strconv.Itoa(v.n))
		case "match":
			if group, err := strconv.Atoi(s.arg); err == nil && group < len(v.match) {
				out.WriteString(v.match[group])
			}
		case "tool_result":
			out.WriteString(v.toolResult(s.arg))
		}
	}
	return out.String()
}

// toolResult is the result of the named tool, or the one the rule is about.
func (v *values) toolResult(name string) string {
	if name == "" && v.result != "" {
		return v.result
	}
	results := v.request.ToolResults()
	for i := len(results) - 1; i >= 0; i-- {
		if name == "" || results[i].ToolName == name {
			return results[i].Text
		}
	}
	return ""
}

// arguments are the arguments of a tool call with the substitutions found.
type arguments struct {
	raw   template // set when the script gave a string
	value any      // else: maps, slices, scalars, and templates for strings
}

func parseArguments(value any) (arguments, error) {
	switch value := value.(type) {
	case nil:
		return arguments{value: map[string]any{}}, nil
	case string:
		raw, err := parseTemplate(value)
		return arguments{raw: raw}, err
	default:
		parsed, err := parseValue(value)
		if err != nil {
			return arguments{}, err
		}
		if _, err := json.Marshal(renderValue(parsed, &values{request: &Request{}})); err != nil {
			return arguments{}, fmt.Errorf("arguments: %w", err)
		}
		return arguments{value: parsed}, nil
	}
}

func parseValue(value any) (any, error) {
	switch value := value.(type) {
	case string:
		return parseTemplate(value)
	case map[string]any:
		parsed := make(map[string]any, len(value))
		for key, member := range value {
			p, err := parseValue(member)
			if err != nil {
				return nil, err
			}
			parsed[key] = p
		}
		return parsed, nil
	case []any:
		parsed := make([]any, len(value))
		for i, member := range value {
			p, err := parseValue(member)
			if err != nil {
				return nil, err
			}
			parsed[i] = p
		}
		return parsed, nil
	default:
		return value, nil
	}
}

func renderValue(value any, v *values) any {
	switch value := value.(type) {
	case template:
		return value.render(v)
	case map[string]any:
		rendered := make(map[string]any, len(value))
		for key, member := range value {
			rendered[key] = renderValue(member, v)
		}
		return rendered
	case []any:
		rendered := make([]any, len(value))
		for i, member := range value {
			rendered[i] = renderValue(member, v)
		}
		return rendered
	default:
		return value
	}
}

func (a arguments) render(v *values) string {
	if a.raw != nil {
		return a.raw.render(v)
	}
	text, err := json.Marshal(renderValue(a.value, v))
	if err != nil {
		// parseArguments has marshalled the same shape.
		return "{}"
	}
	return string(text)
}
