package conformance

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// differ compares a value with what is expected of it, and says where they differ; empty if they do not. Of a mapping
// only the expected keys count. A list has exactly the expected elements, or contains those of {contains: [...]} in
// this order, or none that is like {lacks: …}. A text that begins with ~ is a regular expression. null means that the
// value is empty.
func differ(path string, want, got any) string {
	switch want := want.(type) {
	case nil:
		if got == nil || reflect.ValueOf(got).IsZero() {
			return ""
		}
	case map[string]any:
		if list, ok := got.([]any); ok {
			return differInList(path, want, list)
		}
		if object, ok := got.(map[string]any); ok {
			for key, value := range want {
				if d := differ(path+"."+key, value, object[key]); d != "" {
					return d
				}
			}
			return ""
		}
	case []any:
		list, _ := got.([]any)
		if len(list) != len(want) {
			return fmt.Sprintf("%s has %d elements, want %d: %s", path, len(list), len(want), show(got))
		}
		for i := range want {
			if d := differ(fmt.Sprintf("%s[%d]", path, i), want[i], list[i]); d != "" {
				return d
			}
		}
		return ""
	case string:
		text, _ := got.(string)
		if pattern, ok := strings.CutPrefix(want, "~"); ok {
			if matched, err := regexp.MatchString(pattern, text); err == nil && matched {
				return ""
			}
		} else if text == want {
			return ""
		}
	default:
		if fmt.Sprint(want) == fmt.Sprint(got) {
			return ""
		}
	}
	return fmt.Sprintf("%s is %s, want %s", path, show(got), show(want))
}

func differInList(path string, want map[string]any, list []any) string {
	if lacks, ok := want["lacks"]; ok {
		for i, element := range list {
			if differ(path, lacks, element) == "" {
				return fmt.Sprintf("%s[%d] is %s, which it must not have", path, i, show(element))
			}
		}
	}
	wanted, _ := want["contains"].([]any)
	for _, element := range list {
		if len(wanted) > 0 && differ(path, wanted[0], element) == "" {
			wanted = wanted[1:]
		}
	}
	if len(wanted) > 0 {
		return fmt.Sprintf("%s lacks %s: %s", path, show(wanted[0]), show(list))
	}
	return ""
}

func show(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

// asJSON converts a message to a value of JSON, with all fields, under their names in the .proto files.
func asJSON(m proto.Message) (any, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var value any
	return value, json.Unmarshal(text, &value)
}
