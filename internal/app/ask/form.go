package ask

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Field is a field of a form.
type Field struct {
	Name        string
	Description string
	// The type in JSON Schema: "string", "number", "integer", "boolean" or "array".
	Type     string
	Required bool
	// The values to choose from; empty for any.
	Values []string
}

// form takes a form, or a page to visit.
func (q *Question) form(r *copilot.ElicitationRequest) {
	q.Title = r.GetMessage()
	q.note("From", r.GetElicitationSource())
	if r.GetMode() == cliv1.ElicitationRequestedMode_ELICITATION_REQUESTED_MODE_URL {
		q.Form, q.Detail = Approval, r.GetUrl()
		q.Notes = append(q.Notes, "Open the page, then approve.")
		return
	}
	q.Form = Fields
	schema := r.GetRequestedSchema()
	properties := json.NewDecoder(strings.NewReader(schema.GetPropertiesJson()))
	_, _ = properties.Token() // the brace; a schema that is not an object has no fields
	for properties.More() {
		name, err := properties.Token()
		var property struct {
			Title, Description, Type string
			Enum                     []string
			Items                    struct{ Enum []string }
		}
		var raw json.RawMessage
		if err != nil || properties.Decode(&raw) != nil {
			return
		}
		_ = json.Unmarshal(raw, &property) // of an unusual property what could be read is shown
		key := fmt.Sprint(name)
		description := property.Description
		if description == "" {
			description = property.Title
		}
		q.Fields = append(q.Fields, Field{
			Name: key, Description: description, Type: property.Type,
			Required: slices.Contains(schema.GetRequired(), key), Values: append(property.Enum, property.Items.Enum...),
		})
	}
}

// Line is the field in a line.
func (f Field) Line() string {
	line := f.Name
	if f.Required {
		line += " (required)"
	}
	if f.Description != "" {
		line += ": " + f.Description
	}
	if len(f.Values) > 0 {
		line += " [" + strings.Join(f.Values, ", ") + "]"
	}
	return line
}

// values reads the values of a form: a JSON object, NAME=VALUE pairs with semicolons or line ends between them, or the
// value of the only field.
func (q Question) values(text string) (map[string]any, error) {
	text = strings.TrimSpace(text)
	given := map[string]string{}
	switch {
	case strings.HasPrefix(text, "{"):
		return jsonValues(text)
	case len(q.Fields) == 1 && !strings.HasPrefix(text, q.Fields[0].Name+"="):
		given[q.Fields[0].Name] = text
	default:
		for pair := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' || r == '\n' }) {
			name, value, ok := strings.Cut(pair, "=")
			if !ok {
				return nil, q.errNotFor(fmt.Sprintf("%q is not NAME=VALUE", strings.TrimSpace(pair)))
			}
			given[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return q.typed(given)
}

// typed gives values the types of their fields.
func (q Question) typed(given map[string]string) (map[string]any, error) {
	values := map[string]any{}
	for _, f := range q.Fields {
		text, ok := given[f.Name]
		delete(given, f.Name)
		switch {
		case !ok && f.Required:
			return nil, fmt.Errorf("the field %s is missing", f.Name)
		case !ok:
			continue
		}
		value, err := f.value(text)
		if err != nil {
			return nil, err
		}
		values[f.Name] = value
	}
	for name := range given {
		return nil, fmt.Errorf("the form has no field %q", name)
	}
	return values, nil
}

func (f Field) value(text string) (any, error) {
	switch f.Type {
	case "number", "integer":
		number, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not a number", f.Name, text)
		}
		return number, nil
	case "boolean":
		switch strings.ToLower(text) {
		case "y", "yes", "true":
			return true, nil
		case "n", "no", "false":
			return false, nil
		}
		return nil, fmt.Errorf("%s: %q is not yes or no", f.Name, text)
	case "array":
		items := strings.Split(text, ",")
		for i, item := range items {
			items[i] = strings.TrimSpace(item)
		}
		return items, nil
	}
	if len(f.Values) > 0 && !slices.Contains(f.Values, text) {
		return nil, fmt.Errorf("%s: %q is not one of %s", f.Name, text, strings.Join(f.Values, ", "))
	}
	return text, nil
}

func jsonValues(text string) (map[string]any, error) {
	values := map[string]any{}
	if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&values); err != nil {
		return nil, fmt.Errorf("the values are not a JSON object: %w", err)
	}
	for name, value := range values {
		list, ok := value.([]any)
		if !ok {
			continue
		}
		texts := make([]string, 0, len(list))
		for _, item := range list {
			texts = append(texts, fmt.Sprint(item))
		}
		values[name] = texts
	}
	return values, nil
}
