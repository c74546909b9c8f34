package policy

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
)

const head = "version: 1\nidentity: {certificates: true, tokens: t, oidc: [{issuer: 'https://i.example', audiences: " +
	"[a]}]}\n"

func TestBadPolicies(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"no version":     {"tenants: {}", "version"},
		"misspelt key":   {head + "tenant: {}", "tenant"},
		"misspelt limit": {head + "limits: {session: 1}", "session"},
		"negative limit": {head + "limits: {sessions: -1}", "limits.sessions"},
		"bad name":       {head + "tenants: {A: {}}", `"A"`},
		"bad role": {head + "tenants: {a: {members: [{token: x, role: boss}]}}",
			"tenants.a.members[0].role"},
		"no proof":   {head + "tenants: {a: {members: [{role: owner}]}}", "not 0"},
		"two proofs": {head + "tenants: {a: {members: [{role: owner, token: x, dns: y}]}}", "not 2"},
		"foreign issuer": {head + "tenants: {a: {members: [{role: owner, issuer: 'https://o.example', subject: " +
			"s}]}}", "issuer"},
		"everybody by claim": {head + "tenants: {a: {members: [{role: owner, issuer: 'https://i.example'}]}}",
			"subject"},
		"wild trust domain":   {head + "tenants: {a: {members: [{role: owner, spiffe: 'spiffe://*/x'}]}}", "spiffe"},
		"ambient, open":       {head + "tenants: {a: {ambient: true}}", "tenants.a.ambient"},
		"root":                {head + "tenants: {a: {user: {uid: 0, gid: 0}}}", "tenants.a.user"},
		"user without a home": {head + "tenants: {a: {user: {uid: 7, gid: 7}}}", "tenants.a.user"},
		"host with a home":    {head + "tenants: {host: {home: /x}}", "tenants.host"},
		"relative home":       {head + "tenants: {a: {home: x}}", "tenants.a.home"},
		"bad url":             {head + "tenants: {a: {urls: ['ftp://x']}}", "tenants.a.urls[0]"},
		"wild url": {head + "tenants: {a: {private_urls: ['https://a.*.example']}}",
			"tenants.a.private_urls[0]"},
		"plain issuer": {"version: 1\nidentity: {oidc: [{issuer: 'http://i.example', audiences: [a]}]}", "https"},
		"no audience":  {"version: 1\nidentity: {oidc: [{issuer: 'https://i.example'}]}", "audiences"},
		"none as algorithm": {"version: 1\nidentity: {oidc: [{issuer: 'https://i.example', audiences: [a], " +
			"algorithms: [none]}]}", "algorithms"},
		"shared secret": {"version: 1\nidentity: {oidc: [{issuer: 'https://i.example', audiences: [a], algorithms: " +
			"[HS256]}]}", "algorithms"},
		"proxies without certificates": {"version: 1\nidentity: {tokens: t, proxies: [{dns: p}]}", "identity.proxies"},
		"proxy without a name":         {proxied("{}") + "tenants: {}", "identity.proxies[0]"},
		"proxy with two names":         {proxied("{dns: p, spiffe: 'spiffe://c/p'}"), "exactly one"},
		"wild proxy":                   {proxied("{spiffe: 'spiffe://c/*'}"), "identity.proxies[0].spiffe"},
		"proxy as a member": {proxied("{dns: q}, {spiffe: 'spiffe://c/p'}") +
			"tenants: {a: {members: [{spiffe: 'spiffe://c/**', role: owner}]}}", "identity.proxies[1]"},
		"proxy's name of a member": {proxied("{dns: P}") +
			"tenants: {a: {members: [{dns: p, spiffe: 'spiffe://c/x', role: owner}]}}", "tenants.a.members[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := parse([]byte(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that names %q", err, tc.want)
			}
		})
	}
	if _, err := parse([]byte(head)); err != nil {
		t.Errorf("the least policy: %v", err)
	}
}

// proxied begins a policy with proxies.
func proxied(proxies string) string {
	return "version: 1\nidentity: {certificates: true, proxies: [" + proxies + "]}\n"
}

func mustPolicy(t *testing.T, text string) *Policy {
	t.Helper()
	f, err := parse([]byte(head + text))
	if err != nil {
		t.Fatal(err)
	}
	return &Policy{file: f}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	p := mustPolicy(t, `
tenants:
  acme:
    members:
      - {spiffe: "spiffe://corp.example/agents/*", role: participant}
      - {spiffe: "spiffe://corp.example/ops/**", role: owner}
      - {issuer: "https://i.example", claims: {groups: acme}, role: observer}
      - {issuer: "https://i.example", subject: alice, role: owner}
  rival:
    members:
      - {issuer: "https://i.example", subject: bob, role: owner}
      - {issuer: "https://i.example", subject: alice, role: observer}
      - {token: ci, role: participant}
      - {dns: svc.example, role: participant}
    sandbox: [bwrap]
  host: {members: [{token: root, role: admin}]}
`)
	jwt := func(subject string, claims map[string]any) *identity.Identity {
		return &identity.Identity{Source: identity.JWT, Issuer: "https://i.example", Subject: subject, Claims: claims}
	}
	cert := func(spiffe string) *identity.Identity {
		return &identity.Identity{Source: identity.Certificate, SPIFFE: spiffe}
	}
	for name, tc := range map[string]struct {
		id     *identity.Identity
		wanted string
		tenant string // "-" where there is none
		role   caller.Role
	}{
		"spiffe":               {cert("spiffe://corp.example/agents/a"), "", "acme", caller.Participant},
		"spiffe, too deep":     {cert("spiffe://corp.example/agents/a/b"), "", "-", 0},
		"spiffe, deep":         {cert("spiffe://corp.example/ops/a/b"), "", "acme", caller.Owner},
		"spiffe, prefix alone": {cert("spiffe://corp.example/ops"), "", "-", 0},
		"spiffe, other domain": {cert("spiffe://corp.example.evil/agents/a"), "", "-", 0},
		"no spiffe":            {cert(""), "", "-", 0},
		"claim": {jwt("carol", map[string]any{"groups": []any{"x", "acme"}}), "", "acme",
			caller.Observer},
		"claim, other": {jwt("carol", map[string]any{"groups": "acmes"}), "", "-", 0},
		"subject":      {jwt("bob", nil), "", "rival", caller.Owner},
		"other issuer": {&identity.Identity{Source: identity.JWT, Issuer: "https://o.example",
			Subject: "bob"}, "", "-", 0},
		"two tenants":         {jwt("alice", nil), "", "-", 0},
		"two tenants, chosen": {jwt("alice", nil), "acme", "acme", caller.Owner},
		"not one of them":     {jwt("bob", nil), "acme", "-", 0},
		"token": {&identity.Identity{Source: identity.StaticToken, Token: "ci"}, "", "rival",
			caller.Participant},
		"a token's name in a jwt": {jwt("ci", nil), "", "-", 0},
		"dns": {&identity.Identity{Source: identity.Certificate, DNS: []string{"svc.example"}}, "",
			"rival", caller.Participant},
		"host": {&identity.Identity{Source: identity.StaticToken, Token: "root"}, "", caller.HostTenant, caller.Admin},
	} {
		c, err := p.Resolve(tc.id, tc.wanted)
		switch {
		case tc.tenant == "-" && fault.ReasonOf(err) != fault.Forbidden:
			t.Errorf("%s: %+v, %v; want FORBIDDEN", name, c, err)
		case tc.tenant != "-" &&
			(err != nil || c.Tenant != tc.tenant || c.Role != tc.role || c.Confined != (tc.tenant == "rival")):
			t.Errorf("%s: %+v, %v; want %q as %v", name, c, err, tc.tenant, tc.role)
		}
	}
}

// The caller of a certificate is named by the name that the policy goes by, not by another
// one that the certificate has as well.
func TestCallersAreNamedByWhatMatched(t *testing.T) {
	t.Parallel()
	p := mustPolicy(t, `
tenants:
  acme: {members: [{spiffe: "spiffe://corp.example/agents/*", role: participant}]}
  rival: {members: [{dns: svc.example, role: participant}]}
`)
	id := &identity.Identity{
		Source: identity.Certificate, CommonName: "root", DNS: []string{"admin.example", "svc.example"},
		SPIFFE: "spiffe://corp.example/agents/a",
	}
	for tenant, want := range map[string]string{"acme": "spiffe://corp.example/agents/a", "rival": "svc.example"} {
		if c, err := p.Resolve(id, tenant); err != nil || c.Name != want {
			t.Errorf("in %s: %q, %v, want %q", tenant, c.Name, err, want)
		}
	}
}

func TestBadReloadKeepsThePolicy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "p.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const good = "version: 1\nidentity: {certificates: true}\ntenants: {acme: {}}\n"
	write(good)
	s, err := Open(path, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	before := s.Current()
	for _, bad := range []string{"", "version: 1\n", "version: 1\nidentity: {tokens: missing}\n",
		good + "tenants: {}\n"} {
		write(bad)
		if err := s.Reload(); err == nil || s.Current() != before {
			t.Errorf("%q is taken", bad)
		}
	}
	write(strings.ReplaceAll(good, "acme", "other"))
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Current().Tenant("other"); !ok {
		t.Error("the new policy is not in force")
	}
	write("nonsense")
	if _, err := Open(path, slog.New(slog.DiscardHandler), time.Now); err == nil {
		t.Error("a server starts with a bad policy")
	}
}

// tenantWith is a tenant with lists of URLs, for whom every name below "inside.example" has
// a private address.
func tenantWith(t *testing.T) *Tenant {
	t.Helper()
	p := mustPolicy(t, `
tenants: {a: {urls: ["https://api.example/v1", "https://*.models.example", "http://10.0.0.1", "https://*.inside.example", "https://[::ffff:169.254.169.254]"],
  private_urls: ["http://llm.corp:8080", "http://127.0.0.1:9"]}}
`)
	a := p.file.Tenants["a"]
	a.resolve = func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if strings.HasSuffix(host, "inside.example") {
			return []netip.Addr{netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("169.254.169.254")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("93.184.215.14")}, nil
	}
	return a
}

func TestURLs(t *testing.T) {
	t.Parallel()
	a := tenantWith(t)
	for text, ok := range map[string]bool{
		"https://api.example/v1": true, "https://api.example/v1/chat": true, "https://API.example:443/v1": true,
		"https://api.example./v1": true,
		"https://api.example/v10": false, "https://api.example/v1/../admin": false, "http://api.example/v1": false,
		"https://api.example:444/v1": false,
		"https://x.models.example":   true, "https://models.example": false, "https://evilmodels.example": false,
		"https://api.example@evil.example/v1": false, "https://evil.example/?https://api.example/v1": false,
		"https://api.example\\@evil.example/v1": false, "file:///etc/passwd": false, "https:api.example/v1": false,
		"//api.example/v1": false,
		// on the list, but private
		"http://10.0.0.1": false, "https://x.inside.example": false, "https://[::ffff:169.254.169.254]": false,
		"http://llm.corp:8080/x": true, "http://127.0.0.1:9": true, "http://127.0.0.1:10": false,
		"http://localhost:9":                      false,
		"http://169.254.169.254/latest/meta-data": false, "http://metadata.google.internal": false,
		"http://2130706433:9": false,
	} {
		if err := a.checkURL(t.Context(), text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAddressesThatAreInside(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"8.8.8.8": false, "2606:4700::1111": false, "127.0.0.1": true, "10.1.2.3": true, "172.16.0.1": true,
		"192.168.1.1":     true,
		"169.254.169.254": true, "100.100.100.200": true, "0.0.0.0": true, "224.0.0.1": true, "255.255.255.255": true,
		"::1": true, "::": true,
		"fe80::1": true, "fd00:ec2::254": true, "::ffff:127.0.0.1": true, "64:ff9b::7f00:1": true,
		"2002:7f00:1::": true,
	} {
		if got := inside(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s inside: %v", text, got)
		}
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	a := tenantWith(t)
	config := func(change func(*cliv1.SessionConfig)) proto.Message {
		c := &cliv1.SessionConfig{}
		change(c)
		return &bridgev1.CreateSessionRequest{Config: c}
	}
	paths := func(list ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: list} }
	masked := func(list ...string) proto.Message { return &bridgev1.ResumeSessionRequest{UpdateMask: paths(list...)} }
	start := func(m proto.Message) proto.Message {
		return &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
			Session: &bridgev1.AttachStart_Create{Create: m.(*bridgev1.CreateSessionRequest)},
		}}}
	}
	stdio := func(c *cliv1.SessionConfig) {
		c.McpServers = map[string]*cliv1.McpSerializableServerConfig{"x": {Variant: &cliv1.McpSerializableServerConfig_Stdio{
			Stdio: &cliv1.McpServerConfigStdio{Command: "sh"},
		}}}
	}
	web := func(url string) func(*cliv1.SessionConfig) {
		return func(c *cliv1.SessionConfig) {
			c.McpServers = map[string]*cliv1.McpSerializableServerConfig{"x": {Variant: &cliv1.McpSerializableServerConfig_Http{
				Http: &cliv1.McpServerConfigHttp{Url: url},
			}}}
		}
	}
	for name, tc := range map[string]struct {
		request proto.Message
		field   string // "" where it is fine
	}{
		"empty": {config(func(*cliv1.SessionConfig) {}), ""},
		"model": {config(func(c *cliv1.SessionConfig) { c.Model = proto.String("m") }), ""},
		"working directory": {config(func(c *cliv1.SessionConfig) { c.WorkingDirectory = proto.String("/") }),
			"config.working_directory"},
		"no skills": {config(func(c *cliv1.SessionConfig) { c.EnableSkills = proto.Bool(false) }), ""},
		"skills": {config(func(c *cliv1.SessionConfig) { c.EnableSkills = proto.Bool(true) }),
			"config.enable_skills"},
		"stdio server":     {config(stdio), `config.mcp_servers["x"].stdio.command`},
		"stdio, in Attach": {start(config(stdio)), `start.create.config.mcp_servers["x"].stdio.command`},
		"agent's server": {config(func(c *cliv1.SessionConfig) {
			inner := &cliv1.SessionConfig{}
			stdio(inner)
			c.CustomAgents = []*cliv1.CustomAgentConfig{{Name: "a", McpServers: inner.McpServers}}
		}), `config.custom_agents[0].mcp_servers["x"].stdio.command`},
		"key command": {config(func(c *cliv1.SessionConfig) {
			c.Provider = &cliv1.ProviderConfig{BaseUrl: "https://api.example/v1", ApiKeyCommand: proto.String("sh")}
		}), "config.provider.api_key_command"},
		"provider":         {config(func(c *cliv1.SessionConfig) { c.Provider = &cliv1.ProviderConfig{BaseUrl: "https://api.example/v1"} }), ""},
		"foreign provider": {config(func(c *cliv1.SessionConfig) { c.Provider = &cliv1.ProviderConfig{BaseUrl: "http://127.0.0.1:10"} }), "config.provider.base_url"},
		"metadata by MCP":  {config(web("http://169.254.169.254/latest")), `config.mcp_servers["x"].http.url`},
		"rebound name":     {config(web("https://x.inside.example")), `config.mcp_servers["x"].http.url`},
		"MCP on the list":  {config(web("https://x.models.example")), ""},
		"extra": {config(func(c *cliv1.SessionConfig) { c.JsonExtra = `{"installedPlugins":[]}` }),
			"config.json_extra"},
		"nested extra": {config(func(c *cliv1.SessionConfig) {
			c.Provider = &cliv1.ProviderConfig{BaseUrl: "https://api.example/v1", JsonExtra: `{"x":1}`}
		}), "config.provider.json_extra"},
		"null as extra": {config(func(c *cliv1.SessionConfig) { c.JsonExtra = `{"contextTier":null}` }), ""},
		"no object":     {config(func(c *cliv1.SessionConfig) { c.JsonExtra = `[1]` }), "config.json_extra"},
		"declared and empty": {config(func(c *cliv1.SessionConfig) {
			c.JsonExtra = `{"mcpServers": { }, "customAgents": [], "model": "", "agent": null}`
		}), ""},
		"declared and set":            {config(func(c *cliv1.SessionConfig) { c.JsonExtra = `{"tools":[{}]}` }), "config.json_extra"},
		"declared, empty, the host's": {config(func(c *cliv1.SessionConfig) { c.JsonExtra = `{"pluginDirectories":[]}` }), "config.json_extra"},
		"declared elsewhere": {&bridgev1.SendRequest{Prompt: &bridgev1.Prompt{JsonExtra: `{"attachments":[]}`}},
			"prompt.json_extra"},
		"mask":          {masked("mcp_servers", "system_message", "nonsense"), ""},
		"mask, host":    {masked("mcp_servers", "working_directory"), "update_mask"},
		"mask, all":     {masked("*"), "update_mask"},
		"mask, create":  {&bridgev1.CreateSessionRequest{UpdateMask: paths("enable_skills")}, "update_mask"},
		"mask, Attach":  {start(&bridgev1.CreateSessionRequest{UpdateMask: paths("memory")}), "start.create.update_mask"},
		"provider mask": {&bridgev1.UpdateProviderRequest{UpdateMask: paths("*")}, ""},
		"file attached": {&bridgev1.SendRequest{Prompt: &bridgev1.Prompt{Attachments: []*cliv1.Attachment{
			{Variant: &cliv1.Attachment_File{File: &cliv1.AttachmentFile{Path: "/etc/passwd"}}},
		}}}, "prompt.attachments[0].file.path"},
		"blob attached": {&bridgev1.SendRequest{Prompt: &bridgev1.Prompt{Attachments: []*cliv1.Attachment{
			{Variant: &cliv1.Attachment_Blob{Blob: &cliv1.AttachmentBlob{}}},
		}}}, ""},
	} {
		err := a.CheckFields(t.Context(), tc.request.ProtoReflect())
		field := ""
		if f, ok := err.(*fault.Error); ok {
			field = f.Field
		}
		if field != tc.field || (err == nil) != (tc.field == "") {
			t.Errorf("%s: %v about %q, want one about %q", name, err, field, tc.field)
		}
	}
}

// sounds are parts of names of fields that mostly name the host or an address.
var sounds = []string{"path", "dir", "cwd", "command", "env", "url", "host", "exec", "plugin", "script", "shell",
	"endpoint", "cloud", "proxy", "sandbox", "skill", "discovery", "extension"}

// Every field of a request that callers other than the host's owner may send is checked.
func TestFieldsThatSoundLikeTheHostAreClassed(t *testing.T) {
	t.Parallel()
	seen := map[protoreflect.FullName]bool{}
	var walk func(d protoreflect.MessageDescriptor)
	walk = func(d protoreflect.MessageDescriptor) {
		if seen[d.FullName()] || !strings.HasPrefix(string(d.FullName()), "copilot.") {
			return
		}
		seen[d.FullName()] = true
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			for _, sound := range sounds {
				if strings.Contains(string(f.Name()), sound) && f.Name() != jsonExtra &&
					fieldClasses[f.FullName()] == "" {
					t.Errorf("%s sounds like %q: add it to fields.txt", f.FullName(), sound)
				}
			}
			seen[f.FullName()] = true
			if m := f.Message(); m != nil && f.IsMap() {
				if m = f.MapValue().Message(); m != nil {
					walk(m)
				}
			} else if m != nil {
				walk(m)
			}
		}
	}
	for _, pkg := range []protoreflect.FullName{cliPackage, "copilot.bridge.v1"} {
		protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(f protoreflect.FileDescriptor) bool {
			for i := range f.Services().Len() {
				for j := range f.Services().Get(i).Methods().Len() {
					m := f.Services().Get(i).Methods().Get(j)
					rules, _ := proto.GetExtension(m.Options(), jsonv1.E_Method).(*jsonv1.MethodRules)
					if class := Class(FullMethod(m)); !rules.GetCallback() && class < caller.Host {
						walk(m.Input())
					}
				}
			}
			return true
		})
	}
	for name := range fieldClasses {
		if d, err := protoregistry.GlobalFiles.FindDescriptorByName(name); err != nil {
			t.Errorf("fields.txt has %q, which is no field", name)
		} else if _, ok := d.(protoreflect.FieldDescriptor); !ok {
			t.Errorf("fields.txt has %q, which is a %T", name, d)
		}
	}
}

// A tenant has limits unless the file says otherwise, and 0 lifts one; the owner of the host has
// none.
func TestLimitsByDefault(t *testing.T) {
	t.Parallel()
	f, err := parse([]byte(`
version: 1
identity: {tokens: t}
tenants:
  a: {}
  b: {limits: {sessions: 0, turns: 7}}
  nothing:
  host: {limits: {calls: 3}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "nothing"} {
		if got := f.Tenants[name].Limits; got != quota.TenantDefaults {
			t.Errorf("%s has %+v", name, got)
		}
	}
	want := quota.TenantDefaults
	want.Sessions, want.Turns = 0, 7
	if got := f.Tenants["b"].Limits; got != want {
		t.Errorf("b has %+v", got)
	}
	if got := f.Tenants["host"].Limits; got != (quota.Limits{Calls: 3}) {
		t.Errorf("the host has %+v", got)
	}
	if f.Limits != quota.OverallDefaults {
		t.Errorf("all together have %+v", f.Limits)
	}
	// All that a tenant can use up has one; the others follow from settings.
	defaults := reflect.ValueOf(quota.TenantDefaults)
	for i := range defaults.NumField() {
		name := defaults.Type().Field(i).Tag.Get("yaml")
		if elsewhere := slices.Contains([]string{
			"burst", "message_bytes", "prompt_bytes", "runtimes", "runtime_memory_bytes", "runtime_starts_per_minute",
			"remembered_requests", "remembered_bytes",
		}, name); defaults.Field(i).IsZero() != elsewhere {
			t.Errorf("the default of %s is %v", name, defaults.Field(i))
		}
	}
}
