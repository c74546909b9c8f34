package request

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// A session of a tenant other than the host's owner begins empty. It has the tools that work only within a
// session, and its callers' tools. It has no instructions, discovery or memory of the CLI's environment. The
// official SDKs call this the empty mode.

// isolatedTools are the CLI's own tools that use no files, no network and no other sessions.
var isolatedTools = []string{
	"ask_user", "task_complete", "exit_plan_mode", "task", "read_agent", "write_agent", "list_agents", "send_inbox",
	"context_board", "skill",
}

// Prefixes of the entries of availableTools.
const (
	builtinTool = "builtin:"
	customTool  = "custom:"
	mcpTool     = "mcp:"
)

const (
	availableTools = "availableTools"
	systemMessage  = "systemMessage"
	environment    = "environment_context"
)

// emptyConfig is the configuration of an empty session.
var emptyConfig = mustEmpty()

func mustEmpty() jsonobj.Object {
	tools := []string{customTool + "*", mcpTool + "*"}
	for _, name := range isolatedTools {
		tools = append(tools, builtinTool+name)
	}
	o, err := jsonobj.Parse([]byte(`{
		"enableSessionTelemetry": false, "mcpOAuthTokenStorage": "in-memory", "skipEmbeddingRetrieval": true,
		"embeddingCacheStorage": "in-memory", "enableOnDemandInstructionDiscovery": false, "enableFileHooks": false,
		"enableHostGitOperations": false, "enableSessionStore": false, "enableSkills": false,
		"memory": {"enabled": false},
		"customAgentsLocalOnly": true, "skipCustomInstructions": true, "coauthorEnabled": false,
		"manageScheduleEnabled": false, "enableConfigDiscovery": false, "isExperimentalMode": false,
		"toolFilterPrecedence": "excluded"}`))
	if err != nil {
		panic(err) // it is part of the program
	}
	list, _ := json.Marshal(tools) // strings always encode
	o.Set(availableTools, list)
	return o
}

// Underlying merges a configuration into the one with which sessions of the caller's tenant begin, without the
// server's defaults for the removed members.
func (p *Parser) Underlying(c caller.Caller, config jsonobj.Object, removed ...string) (jsonobj.Object, error) {
	defaults := p.cfg.Defaults.Clone()
	for _, name := range removed {
		defaults.Set(name, nil)
	}
	if p.cfg.Ambient(c.Tenant) {
		return defaults.Merge(config), nil
	}
	config = emptyConfig.Merge(defaults).Merge(config)
	config.Set(systemMessage, withoutEnvironment(config.Get(systemMessage)))
	return Restrained(c, config)
}

// Restrained restricts the configuration of a caller that may not use the host: it checks the tools,
// and restores members of the empty session that the configuration unsets. The server rejects
// fields that name the host.
func Restrained(c caller.Caller, config jsonobj.Object) (jsonobj.Object, error) {
	if c.May(caller.Host) {
		return config, nil
	}
	config = config.Clone()
	for _, m := range emptyConfig {
		if value := config.Get(m.Key); value != nil && string(value) == "null" {
			config.Set(m.Key, m.Value)
		}
	}
	if list := config.Get(availableTools); list != nil {
		if err := checkTools(list); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// Requested returns the part of a configuration that differs from what the server itself gives the sessions of the
// caller's tenant. A stored configuration contains both, and the caller needs no right to what the server gives.
func (p *Parser) Requested(c caller.Caller, config *cliv1.SessionConfig) (*cliv1.SessionConfig, error) {
	if config == nil {
		return nil, nil
	}
	underlying, err := p.Underlying(c, nil)
	if err != nil {
		return nil, err
	}
	own := &cliv1.SessionConfig{}
	if err := p.cfg.Codec.FromJSON(underlying.JSON(), own); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the configuration of new sessions")
	}
	out := proto.CloneOf(config)
	given := out.ProtoReflect()
	own.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if given.Has(f) && given.Get(f).Equal(v) {
			given.Clear(f)
		}
		return true
	})
	return out, nil
}

// checkTools refuses a list of tools with one that could reach the host.
func checkTools(list json.RawMessage) error {
	var names []string
	if err := json.Unmarshal(list, &names); err != nil {
		return fault.New(fault.InvalidField, "available_tools is not a list of names").WithField("config.available_tools")
	}
	for i, name := range names {
		builtin, isBuiltin := strings.CutPrefix(name, builtinTool)
		switch {
		case isBuiltin && slices.Contains(isolatedTools, builtin),
			strings.HasPrefix(name, customTool), strings.HasPrefix(name, mcpTool):
		default:
			return fault.New(fault.Forbidden, "%q may name a tool that affects the host, which only the host's owner or "+
				"a tenant with a sandbox may use: name other tools custom:NAME, mcp:NAME, or builtin:NAME with one of %s",
				name, strings.Join(isolatedTools, ", ")).
				WithField(fmt.Sprintf("config.available_tools.items[%d]", i))
		}
	}
	return nil
}

// withoutEnvironment removes the description of the host from a system message, unless the message
// says what becomes of it.
func withoutEnvironment(message json.RawMessage) json.RawMessage {
	var o jsonobj.Object
	if message != nil {
		var err error
		if o, err = jsonobj.Parse(message); err != nil {
			return message // the CLI says what is wrong with it
		}
	}
	switch o.String("mode") {
	case "replace":
		return message
	case "customize", "append", "":
	default:
		return message
	}
	sections, err := jsonobj.Parse(o.Get("sections"))
	if err != nil {
		sections = nil
	}
	if sections.Get(environment) == nil {
		sections.Set(environment, json.RawMessage(`{"action":"remove"}`))
	}
	o = o.Clone()
	o.SetString("mode", "customize")
	o.Set("sections", sections.JSON())
	return o.JSON()
}
