package request

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// newParser returns a parser that allows prompts of 10 bytes.
func newParser(t *testing.T, defaults string) *Parser {
	t.Helper()
	codec := wire.New(slog.New(slog.DiscardHandler))
	c := Config{
		Codec: codec, Ambient: func(tenant string) bool { return tenant == caller.HostTenant },
		Providers: func(string) session.Providers { return nil },
		CheckPrompt: func(_ string, size int, field string) error {
			if size > 10 {
				return fault.New(fault.PromptTooLarge, "%d bytes", size).WithField(field)
			}
			return nil
		},
	}
	if defaults != "" {
		var err error
		if c.Defaults, err = jsonobj.Parse([]byte(defaults)); err != nil {
			t.Fatal(err)
		}
	}
	return New(c)
}

func wantField(t *testing.T, what string, err error, reason fault.Reason, field string) {
	t.Helper()
	f, ok := fields.AsFault(err)
	if !ok || f.Reason != reason || f.Field != field {
		t.Errorf("%s: error is %v, want %s about %q", what, err, reason, field)
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

func TestPrompt(t *testing.T) {
	t.Parallel()
	p := newParser(t, "")
	headers := map[string]string{"x": "y"}
	for name, test := range map[string]struct {
		p      *bridgev1.Prompt
		want   string
		reason fault.Reason
		field  string
		over   bool
	}{
		"text":           {p: &bridgev1.Prompt{Text: "hi"}, want: `{"prompt":"hi"}`},
		"nothing":        {p: nil, reason: fault.PromptEmpty, field: "prompt.text"},
		"white space":    {p: &bridgev1.Prompt{Text: " \n"}, reason: fault.PromptEmpty, field: "prompt.text"},
		"long enough":    {p: &bridgev1.Prompt{Text: "0123456789"}, want: `{"prompt":"0123456789"}`},
		"too long":       {p: &bridgev1.Prompt{Text: "0123456789a"}, reason: fault.PromptTooLarge, field: "prompt.text"},
		"mode":           {p: &bridgev1.Prompt{Text: "hi", Mode: cliv1.SendMode_SEND_MODE_ENQUEUE}, want: `{"prompt":"hi","mode":"enqueue"}`},
		"headers":        {p: &bridgev1.Prompt{Text: "hi", RequestHeaders: headers}, want: `{"prompt":"hi","requestHeaders":{"x":"y"}}`, over: true},
		"merged headers": {p: &bridgev1.Prompt{Text: "hi", RequestHeaders: headers, HeaderStrategy: bridgev1.HeaderStrategy_HEADER_STRATEGY_MERGE}, want: `{"prompt":"hi","requestHeaders":{"x":"y"}}`},
		"extra":          {p: &bridgev1.Prompt{Text: "hi", JsonExtra: `{"new":1}`}, want: `{"prompt":"hi","new":1}`},
		"session id":     {p: &bridgev1.Prompt{Text: "hi", JsonExtra: `{"sessionId":"x"}`}, reason: fault.JSONExtraForbidden, field: "prompt.json_extra"},
		"wait":           {p: &bridgev1.Prompt{Text: "hi", JsonExtra: `{"wait":true}`}, reason: fault.JSONExtraForbidden, field: "prompt.json_extra"},
		"declared":       {p: &bridgev1.Prompt{Text: "hi", JsonExtra: `{"mode":"x"}`}, reason: fault.JSONExtraForbidden, field: "prompt.json_extra"},
	} {
		m, err := p.Prompt(caller.Caller{}, test.p)
		if test.reason != 0 {
			wantField(t, name, err, test.reason, test.field)
			continue
		}
		m.Params.Set("sessionId", nil) // empty as yet
		if err != nil || !sameJSON(t, m.Params.JSON(), []byte(test.want)) || m.Override != test.over {
			t.Errorf("%s: %s, override %v, %v", name, m.Params.JSON(), m.Override, err)
		}
	}
}

func TestOpenings(t *testing.T) {
	t.Parallel()
	p := newParser(t, `{"provider":{"baseUrl":"http://d"},"model":"d"}`)
	creation := func(q *bridgev1.CreateSessionRequest) (session.Opening, error) {
		return p.Creation(caller.Caller{}, q, "create.", false)
	}
	o, err := creation(&bridgev1.CreateSessionRequest{Config: &cliv1.SessionConfig{Model: proto.String("m")}})
	if err != nil || !sameJSON(t, o.Config.JSON(), []byte(`{"provider":{"baseUrl":"http://d"},"model":"m"}`)) || o.Tools != nil {
		t.Errorf("defaults: %s, %v", o.Config.JSON(), err)
	}
	o, err = creation(&bridgev1.CreateSessionRequest{Config: &cliv1.SessionConfig{GithubToken: proto.String("t")}})
	if err != nil || o.Config.Get("provider") != nil || o.Config.String("gitHubToken") != "t" {
		t.Errorf("with a token: %s, %v", o.Config.JSON(), err)
	}
	for what, test := range map[string]struct {
		q      *bridgev1.CreateSessionRequest
		reason fault.Reason
		field  string
	}{
		"id":        {&bridgev1.CreateSessionRequest{SessionId: "../x"}, fault.InvalidField, "create.session_id"},
		"tool name": {&bridgev1.CreateSessionRequest{Config: &cliv1.SessionConfig{Tools: []*cliv1.ToolDefinition{{Name: "a b"}}}}, fault.ToolNameInvalid, "create.config.tools[0].name"},
		"timeout":   {&bridgev1.CreateSessionRequest{CallbackTimeout: durationpb.New(-time.Second)}, fault.InvalidField, "create.callback_timeout"},
		"own":       {&bridgev1.CreateSessionRequest{Config: &cliv1.SessionConfig{JsonExtra: `{"disableResume":true}`}}, fault.JSONExtraForbidden, "create.config.json_extra"},
	} {
		_, err := creation(test.q)
		wantField(t, what, err, test.reason, test.field)
	}
}

func TestProviderMask(t *testing.T) {
	t.Parallel()
	p := newParser(t, "")
	const before = `{"type":"openai","baseUrl":"http://x","apiKey":"k","headers":{"a":"1"},"new":true}`
	given := &cliv1.ProviderConfig{BaseUrl: "http://y", BearerToken: proto.String("b")}
	for name, test := range map[string]struct {
		p     *cliv1.ProviderConfig
		paths []string
		want  string
		field string
	}{
		"what is set":         {p: given, want: `{"type":"openai","baseUrl":"http://y","apiKey":"k","headers":{"a":"1"},"new":true,"bearerToken":"b"}`},
		"not the required":    {p: &cliv1.ProviderConfig{ApiKey: proto.String("n")}, want: strings.Replace(before, `"k"`, `"n"`, 1)},
		"only what is named":  {p: given, paths: []string{"bearer_token"}, want: strings.TrimSuffix(before, "}") + `,"bearerToken":"b"}`},
		"named and unset":     {p: given, paths: []string{"api_key", "base_url"}, want: `{"type":"openai","baseUrl":"http://y","headers":{"a":"1"},"new":true}`},
		"headers gone":        {p: nil, paths: []string{"headers"}, want: `{"type":"openai","baseUrl":"http://x","apiKey":"k","new":true}`},
		"all":                 {p: &cliv1.ProviderConfig{BaseUrl: "http://y", JsonExtra: `{"newer":1}`}, paths: []string{"*"}, want: `{"baseUrl":"http://y","newer":1}`},
		"extra":               {p: &cliv1.ProviderConfig{JsonExtra: `{"new":2}`}, want: strings.Replace(before, `"new":true`, `"new":2`, 1)},
		"an unknown field":    {p: given, paths: []string{"baseUrl"}, field: "update_mask"},
		"a field of a field":  {p: given, paths: []string{"azure.api_version"}, field: "update_mask"},
		"extra by its name":   {p: given, paths: []string{"json_extra"}, field: "update_mask"},
		"extra of what there": {p: &cliv1.ProviderConfig{JsonExtra: `{"baseUrl":"z"}`}, field: "provider.json_extra"},
	} {
		over, err := p.ProviderChange(&bridgev1.UpdateProviderRequest{Provider: test.p, UpdateMask: &fieldmaskpb.FieldMask{Paths: test.paths}})
		if test.field != "" {
			reason := fault.InvalidField
			if strings.HasSuffix(test.field, "json_extra") {
				reason = fault.JSONExtraForbidden
			}
			wantField(t, name, err, reason, test.field)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		o, err := jsonobj.Parse([]byte(before))
		if err != nil {
			t.Fatal(err)
		}
		if got := over(o).JSON(); !sameJSON(t, got, []byte(test.want)) {
			t.Errorf("%s: %s\nwant %s", name, got, test.want)
		}
	}
}

// A tenant's session begins empty, and cannot unset what keeps it from the host.
func TestEmptySessions(t *testing.T) {
	t.Parallel()
	p := newParser(t, "")
	guest := caller.Caller{Tenant: "a", Role: caller.Owner, Class: caller.Drive}
	for name, test := range map[string]struct {
		config string
		want   map[string]string
		field  string
	}{
		"nothing":         {config: `{}`, want: map[string]string{"enableSkills": "false", "systemMessage": `{"mode":"customize","sections":{"environment_context":{"action":"remove"}}}`}},
		"set":             {config: `{"enableSkills":true}`, want: map[string]string{"enableSkills": "true"}},
		"unset":           {config: `{"enableFileHooks":null}`, want: map[string]string{"enableFileHooks": "false"}},
		"own message":     {config: `{"systemMessage":{"mode":"replace","content":"x"}}`, want: map[string]string{"systemMessage": `{"mode":"replace","content":"x"}`}},
		"isolated tools":  {config: `{"availableTools":["builtin:ask_user","custom:x"]}`, want: map[string]string{"availableTools": `["builtin:ask_user","custom:x"]`}},
		"tools on a host": {config: `{"availableTools":["custom:x","builtin:bash"]}`, field: "config.available_tools.items[1]"},
		"no list":         {config: `{"availableTools":7}`, field: "config.available_tools"},
	} {
		o, err := jsonobj.Parse([]byte(test.config))
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Underlying(guest, o)
		if test.field != "" {
			if f, ok := fields.AsFault(err); !ok || f.Field != test.field {
				t.Errorf("%s: %v, want an error about %s", name, err, test.field)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for member, want := range test.want {
			if !sameJSON(t, got.Get(member), []byte(want)) {
				t.Errorf("%s: %s is %s, want %s", name, member, got.Get(member), want)
			}
		}
		if all, err := p.Underlying(caller.Caller{}, o); err != nil || !sameJSON(t, all.JSON(), o.JSON()) {
			t.Errorf("%s, of the host's own tenant: %s, %v", name, all.JSON(), err)
		}
	}
}

// Members that a request leaves out cost nothing.
func TestOptional(t *testing.T) { // not parallel: it counts allocations
	if v := Optional("a"); v == nil || *v != "a" {
		t.Errorf("a string becomes %v", v)
	}
	var v *string
	if n := testing.AllocsPerRun(100, func() { v = Optional("") }); n != 0 || v != nil {
		t.Errorf("an empty string takes %v allocations and becomes %v", n, v)
	}
}
