package offlinemodel

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// values are what the substitutions of a text become: {{user}}, {{model}}, {{tool_result}}, {{tool_result.NAME}},
// {{match.N}} and {{n}}. There is no logic in texts, on purpose: a script is to be read, and rules already choose
// between answers. text/template would not do: it would refuse other braces, and names of tools with a dash.
type values struct {
	request *Request
	match   []string // groups of the rule's user_regex
	result  string   // the tool result that met the rule's condition
	n       int      // repetition, from 1
}

var substitution = regexp.MustCompile(`\{\{\s*[a-z_]+(\.[^{}\s]+)?\s*\}\}`)

// parts returns what a substitution names, and what follows its dot.
func parts(substitution string) (name, arg string) {
	name, arg, _ = strings.Cut(strings.TrimSpace(strings.Trim(substitution, "{}")), ".")
	return name, arg
}

// checkText returns an error if a text has an unknown substitution.
func checkText(text string) error {
	for _, found := range substitution.FindAllString(text, -1) {
		switch name, arg := parts(found); name {
		case "user", "model", "n":
			if arg == "" {
				continue
			}
		case "tool_result":
			continue
		case "match":
			if group, err := strconv.Atoi(arg); err == nil && group >= 0 {
				continue
			}
		}
		return fmt.Errorf("unknown substitution %s, want user, model, tool_result, tool_result.NAME, match.N or n", found)
	}
	return nil
}

// expand substitutes values in a text. counted reports whether the number of the repetition is among them.
func (v *values) expand(text string) (expanded string, counted bool) {
	expanded = substitution.ReplaceAllStringFunc(text, func(found string) string {
		switch name, arg := parts(found); name {
		case "user":
			return v.request.UserText()
		case "model":
			return v.request.Model
		case "n":
			counted = true
			return strconv.Itoa(v.n)
		case "match":
			if group, err := strconv.Atoi(arg); err == nil && group < len(v.match) {
				return v.match[group]
			}
		case "tool_result":
			return v.toolResult(arg)
		}
		return ""
	})
	return expanded, counted
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

// checkArguments returns an error if the arguments of a tool call have an unknown substitution, or are not JSON's.
func checkArguments(arguments any) error {
	var unknown error
	checked := mapTexts(arguments, func(text string) string {
		if err := checkText(text); err != nil {
			unknown = err
		}
		return text
	})
	if unknown != nil {
		return unknown
	}
	if _, err := json.Marshal(checked); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	return nil
}

// arguments substitutes values in the arguments of a tool call: text is sent as it is, all else as JSON.
func (v *values) arguments(arguments any) string {
	expand := func(text string) string {
		expanded, _ := v.expand(text)
		return expanded
	}
	switch arguments := arguments.(type) {
	case nil:
		return "{}"
	case string:
		return expand(arguments)
	}
	text, err := json.Marshal(mapTexts(arguments, expand))
	if err != nil {
		// checkArguments has marshalled the same shape.
		return "{}"
	}
	return string(text)
}

// mapTexts returns a copy of a value, of which f has made the texts in maps and lists.
func mapTexts(value any, f func(string) string) any {
	switch value := value.(type) {
	case string:
		return f(value)
	case map[string]any:
		mapped := make(map[string]any, len(value))
		for key, member := range value {
			mapped[key] = mapTexts(member, f)
		}
		return mapped
	case []any:
		mapped := make([]any, len(value))
		for i, member := range value {
			mapped[i] = mapTexts(member, f)
		}
		return mapped
	default:
		return value
	}
}
