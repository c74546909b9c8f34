package request

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

func paths(list ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: list} }

// A resume's mask empties lists and maps, and removes other members.
func TestResumeMask(t *testing.T) {
	t.Parallel()
	p := newParser(t, `{"mcpServers":{"default":{"command":"x"}}}`)
	host, guest := caller.Caller{}, caller.Caller{Tenant: "a", Role: caller.Owner, Class: caller.Drive}
	model := &cliv1.SessionConfig{Model: proto.String("m"), SkillDirectories: []string{"/s"}}
	for name, test := range map[string]struct {
		by      caller.Caller
		config  *cliv1.SessionConfig
		mask    *fieldmaskpb.FieldMask
		want    string
		removed []string
		tools   int // -1: unchanged
		field   string
	}{
		"no mask": {config: model, want: `{"model":"m","skillDirectories":["/s"]}`, tools: -1},
		"lists and maps": {
			mask: paths("mcp_servers", "custom_agents"), want: `{"mcpServers":{},"customAgents":[]}`, tools: -1,
		},
		"tools": {mask: paths("tools"), want: `{}`},
		"tools with a value": {
			config: &cliv1.SessionConfig{Tools: []*cliv1.ToolDefinition{{Name: "t"}}}, mask: paths("tools"),
			want: `{}`, tools: 1,
		},
		"others": {
			mask: paths("system_message", "hooks", "available_tools"), want: `{}`, tools: -1,
			removed: []string{"systemMessage", "hooks", "availableTools"},
		},
		"with values": {
			config: model, mask: paths("model", "skill_directories"), tools: -1,
			want: `{"model":"m","skillDirectories":["/s"]}`,
		},
		"unlisted values": {
			config: model, mask: paths("mcp_servers"), tools: -1,
			want: `{"model":"m","skillDirectories":["/s"],"mcpServers":{}}`,
		},
		"an explicit list": {
			config: &cliv1.SessionConfig{AvailableTools: &cliv1.StringList{}}, mask: paths("available_tools"),
			want: `{"availableTools":[]}`, tools: -1,
		},
		"an explicit text": {
			config: &cliv1.SessionConfig{Agent: proto.String("")}, mask: paths("agent"), want: `{"agent":""}`, tools: -1,
		},
		"json_extra": {
			config: &cliv1.SessionConfig{JsonExtra: `{"mcpServers":{}, "tools":[]}`}, want: `{"mcpServers":{}}`,
		},
		"listed twice": {mask: paths("mcp_servers", "mcp_servers"), want: `{"mcpServers":{}}`, tools: -1},

		// A tenant's session returns to what keeps it from the host.
		"of a tenant": {
			by: guest, mask: paths("available_tools", "enable_skills", "hooks"), tools: -1, removed: []string{"hooks"},
			want: `{"availableTools":` + string(emptyConfig.Get(availableTools)) + `,"enableSkills":false}`,
		},
		"a tenant's system message": {
			by: guest, mask: paths("system_message"), tools: -1,
			want: `{"systemMessage":{"mode":"customize","sections":{"environment_context":{"action":"remove"}}}}`,
		},

		"an unknown field":   {mask: paths("mcp_servers", "colour"), field: "resume.update_mask"},
		"a name of JSON":     {mask: paths("mcpServers"), field: "resume.update_mask"},
		"a field of a field": {mask: paths("system_message.content"), field: "resume.update_mask"},
		"a key of a map":     {mask: paths("mcp_servers.x"), field: "resume.update_mask"},
		"no field":           {mask: paths(""), field: "resume.update_mask"},
		"extra":              {mask: paths("json_extra"), field: "resume.update_mask"},
		"all and one":        {mask: paths("*", "model"), field: "resume.update_mask"},
	} {
		by := test.by
		if by.Tenant == "" {
			by = host
		}
		q := &bridgev1.ResumeSessionRequest{Config: test.config, UpdateMask: test.mask}
		o, err := p.Resumption(by, q, "resume.", false)
		if test.field != "" {
			wantField(t, name, err, fault.InvalidField, test.field)
			continue
		}
		given := -1
		if o.Tools != nil {
			given = len(*o.Tools)
		}
		if err != nil || !sameJSON(t, o.Config.JSON(), []byte(test.want)) || !slices.Equal(o.Removed, test.removed) ||
			given != test.tools {
			t.Errorf("%s: %s without %q, %d tools, %v", name, o.Config.JSON(), o.Removed, given, err)
		}
	}
}

// "*" lists every field of the configuration.
func TestResumeMaskOfAll(t *testing.T) {
	t.Parallel()
	o, err := newParser(t, "").Resumption(caller.Caller{}, &bridgev1.ResumeSessionRequest{
		Config: &cliv1.SessionConfig{Model: proto.String("m")}, UpdateMask: paths("*"),
	}, "", false)
	if err != nil {
		t.Fatal(err)
	}
	members := (*cliv1.SessionConfig)(nil).ProtoReflect().Descriptor().Fields()
	for i := range members.Len() {
		name := members.Get(i).JSONName()
		listed := 0
		if slices.Contains(o.Removed, name) {
			listed++
		}
		if o.Config.Get(name) != nil {
			listed++
		}
		if name == "tools" && o.Tools != nil {
			listed++
		}
		if want := name != "jsonExtra"; want != (listed == 1) {
			t.Errorf("%s is listed %d times", name, listed)
		}
	}
}

// A creation's mask clears the server's defaults.
func TestCreateMask(t *testing.T) {
	t.Parallel()
	p := newParser(t, `{"mcpServers":{"x":{"command":"x"}},"systemMessage":{"content":"d"},"model":"d","tools":[]}`)
	create := func(by caller.Caller, c *cliv1.SessionConfig, mask *fieldmaskpb.FieldMask) (string, error) {
		o, err := p.Creation(by, &bridgev1.CreateSessionRequest{Config: c, UpdateMask: mask}, "create.", false)
		for _, other := range emptyConfig { // all of an empty session is there anyway
			if other.Key != availableTools {
				o.Config.Set(other.Key, nil)
			}
		}
		return string(o.Config.JSON()), err
	}
	guest := caller.Caller{Tenant: "a", Role: caller.Owner, Class: caller.Drive}
	for name, test := range map[string]struct {
		by     caller.Caller
		config *cliv1.SessionConfig
		mask   *fieldmaskpb.FieldMask
		want   string
	}{
		"nothing": {want: `{"mcpServers":{"x":{"command":"x"}},"systemMessage":{"content":"d"},"model":"d","tools":[]}`},
		"cleared": {mask: paths("mcp_servers", "system_message", "model"), want: `{"mcpServers":{},"tools":[]}`},
		"with a value": {config: &cliv1.SessionConfig{Model: proto.String("m")}, mask: paths("model", "system_message"),
			want: `{"mcpServers":{"x":{"command":"x"}},"model":"m","tools":[]}`},
		"of a tenant": {by: guest, mask: paths("available_tools", "mcp_servers", "system_message", "model"),
			want: `{"availableTools":` + string(emptyConfig.Get(availableTools)) + `,"mcpServers":{},"tools":[],` +
				`"systemMessage":{"mode":"customize","sections":{"environment_context":{"action":"remove"}}}}`},
	} {
		if got, err := create(test.by, test.config, test.mask); err != nil || !sameJSON(t, []byte(got), []byte(test.want)) {
			t.Errorf("%s: %s, %v, want %s", name, got, err, test.want)
		}
	}
	_, err := create(caller.Caller{}, nil, paths("nonsense"))
	wantField(t, "an unknown field", err, fault.InvalidField, "create.update_mask")
	if f, _ := fields.AsFault(err); f == nil || f.Message != `the configuration has no field "nonsense"` {
		t.Errorf("the message is %v", err)
	}
}
