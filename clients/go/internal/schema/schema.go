// Package schema derives and checks JSON Schemas of the arguments of tools.
package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/protobuf/proto"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Check makes the function that checks and decodes a tool's arguments, and
// derives their schema where the definition has none.
//
// The schemas come from google/jsonschema-go: it has no dependencies, derives and
// validates with one and the same model, and keeps the order of a struct's fields, so
// that a tool's definition has the same bytes each time (the model's prompt cache
// depends on that).
func Check[Args any](def *cliv1.ToolDefinition) (func(json.RawMessage, *Args) error, error) {
	schema, err := argumentSchema[Args](def)
	if err != nil {
		return nil, err
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("the schema of its arguments: %w", err)
	}
	accepts := compile(schema)
	return func(raw json.RawMessage, args *Args) error {
		if len(raw) == 0 {
			raw = json.RawMessage("{}") // the agent gives none where it has nothing to give
		}
		var value any
		if err := json.Unmarshal(raw, &value); err != nil {
			return err
		}
		if accepts == nil || !accepts(value) {
			if err := resolved.Validate(value); err != nil {
				return err
			}
		}
		return json.Unmarshal(raw, args)
	}, nil
}

func argumentSchema[Args any](def *cliv1.ToolDefinition) (*jsonschema.Schema, error) {
	if given := def.GetParametersJson(); given != "" {
		schema := new(jsonschema.Schema)
		if err := json.Unmarshal([]byte(given), schema); err != nil {
			return nil, fmt.Errorf("the schema of its arguments: %w", err)
		}
		return schema, nil
	}
	schema, err := jsonschema.For[Args](nil)
	if err != nil {
		return nil, fmt.Errorf("derive the schema of its arguments: %w", err)
	}
	renameFields(schema, reflect.TypeFor[Args]())
	if schema.Type != "object" {
		return nil, errors.New("its arguments must be a struct, or a map with string keys")
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, fmt.Errorf("encode the schema of its arguments: %w", err)
	}
	def.ParametersJson = proto.String(string(text))
	return schema, nil
}
