package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// CheckDeclared checks the commands, custom agents and canvases of a configuration. It refuses declarations that the
// CLI accepts and then ignores, or with which a turn fails. at is the path of the configuration, with its dot, or empty.
func CheckDeclared(o jsonobj.Object, at string) error {
	if _, err := ParseCommands(o.Get("commands"), at+"commands"); err != nil {
		return err
	}
	if err := checkAgents(o.Get("customAgents"), at+"custom_agents"); err != nil {
		return err
	}
	return checkCanvases(o.Get("canvases"), at+"canvases")
}

// elementsOf returns the elements of a JSON array; none if it is absent or null.
func elementsOf(array json.RawMessage, field string) (elements []json.RawMessage, err error) {
	if len(array) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(array, &elements); err != nil {
		return nil, fault.New(fault.InvalidField, "not an array").WithField(field)
	}
	return elements, nil
}

// checkAgents checks custom agents. The CLI chooses an agent by its name, and finds only the first of two with one
// name; a turn of an agent without instructions fails.
func checkAgents(array json.RawMessage, field string) error {
	return checkNamed(array, field, "name", func(agent jsonobj.Object, at string) error {
		if prompt := agent.Get("prompt"); len(prompt) == 0 || prompt[0] != '"' {
			return fault.New(fault.InvalidField, "the agent has no instructions").WithField(at + ".prompt")
		}
		return nil
	})
}

// checkCanvases checks canvases and their actions. Of two actions with one name, only the first can be invoked.
func checkCanvases(array json.RawMessage, field string) error {
	return checkNamed(array, field, "id", func(canvas jsonobj.Object, at string) error {
		if err := checkInput(canvas, at); err != nil {
			return err
		}
		return checkNamed(canvas.Get("actions"), at+".actions", "name", checkInput)
	})
}

// checkInput checks the schema of a canvas's or an action's input.
func checkInput(o jsonobj.Object, at string) error {
	if schema := o.Get("inputSchema"); schema != nil {
		return checkSchema(schema, at+".input_schema_json")
	}
	return nil
}

// checkNamed checks the objects of a JSON array, which differ by a member that is not blank, and each by check.
func checkNamed(
	array json.RawMessage, field, member string, check func(o jsonobj.Object, at string) error,
) error {
	elements, err := elementsOf(array, field)
	if err != nil {
		return err
	}
	var names []string
	for i, e := range elements {
		at := fmt.Sprintf("%s[%d]", field, i)
		o, err := jsonobj.Parse(e)
		if err != nil {
			return fault.New(fault.InvalidField, "not a JSON object").WithField(at)
		}
		name := o.String(member)
		switch {
		case strings.TrimSpace(name) == "":
			return fault.New(fault.InvalidField, "the %s is empty", member).WithField(at + "." + member)
		case slices.Contains(names, name):
			return fault.New(fault.InvalidField, "there are two with the %s %q", member, name).
				WithField(at + "." + member)
		}
		names = append(names, name)
		if err := check(o, at); err != nil {
			return err
		}
	}
	return nil
}
