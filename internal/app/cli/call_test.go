package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMethodNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Run":                "copilot.bridge.v1.SessionService/Run",
		"SessionService/Run": "copilot.bridge.v1.SessionService/Run",
		"/copilot.bridge.v1.EventService/Subscribe": "copilot.bridge.v1.EventService/Subscribe",
		"Health/Check":           "grpc.health.v1.Health/Check",
		"SessionModeService/Set": "copilot.cli.v1.SessionModeService/Set",
	} {
		if m, err := findMethod(name); err != nil || fullName(m) != want {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	for name, want := range map[string]string{
		"Rnu":                    `there is no method "Rnu"; did you mean "Run"?`,
		"SessionService/Rnu":     `SessionService has no method "Rnu"; did you mean "Run"?`,
		"SesionService/Run":      `there is no service "SesionService"; did you mean "SessionService/Run"?`,
		"x.v1.SesionService/Run": `there is no service "SesionService"; did you mean "SessionService/Run"?`,
		"EventService/Zzzzzzzzz": `EventService has no method "Zzzzzzzzz"; it has Subscribe, WatchSessions`,
		"Set":                    `7 services have a method "Set": choose PluginsBuiltinService/Set or `,
		"List":                   `services have a method "List": name one, such as Health/List`,
	} {
		if _, err := findMethod(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

func TestMisnamed(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]string{
		`Run {"promt": {}}`:                                           `copilot.bridge.v1.RunRequest has no field "promt"; did you mean "prompt"?`,
		`Run {"prompt": {"txt": ""}}`:                                 `has no field "txt"; did you mean "text"?`,
		`Run {"prompt": {"attachments": [{}, {"fiel": {}}]}}`:         `has no field "fiel"; did you mean "file"?`,
		`Ping {"runtimeProfile": {"env": {"A": 1}}}`:                  `the request is not a copilot.bridge.v1.PingRequest`,
		`ListSessions {"filter": {"labels": {"x": "y"}, "lables":1}}`: `has no field "lables"; did you mean "labels"?`,
		`GetUsage {"groupBy": ["USAGE_GROUP_DAI"]}`:                   `has no value "USAGE_GROUP_DAI"; did you mean "USAGE_GROUP_DAY"?`,
		`Ping [1]`: "the request is not a copilot.bridge.v1.PingRequest",
	} {
		method, text, _ := strings.Cut(request, " ")
		r := run(t, nil, "", "call", method, text)
		if r.code != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v, want %s", request, r, want)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	md, err := parseHeaders([]string{"copilot-fidelity: exact", "X: a:b ", "x:c", "key-bin: AAE="})
	if err != nil || md.Get("copilot-fidelity")[0] != "exact" || !slices.Equal(md.Get("x"), []string{"a:b", "c"}) ||
		md.Get("key-bin")[0] != "\x00\x01" {
		t.Errorf("%q, %v", md, err)
	}
	for _, wrong := range []string{"exact", ": exact", "key-bin: !"} {
		if _, err := parseHeaders([]string{wrong}); err == nil {
			t.Errorf("%q is a header", wrong)
		}
	}
}

// A request can be in a file, and headers reach the server.
func TestCallFileAndHeader(t *testing.T) {
	t.Parallel()
	env := []string{"COPILOT_GRPC_TARGET=" + server(t)}
	file := filepath.Join(t.TempDir(), "request.json")
	if err := os.WriteFile(file, []byte(`{"message": "from a file"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, env, "", "call", "RuntimeService/Ping", "@"+file); !strings.Contains(r.stdout, "from a file") {
		t.Errorf("%+v", r)
	}
	if r := run(t, env, "", "call", "Ping", "@"+file+".none"); r.code != exitUsage || !strings.Contains(r.stderr, "no such file") {
		t.Errorf("a file that is not there: %+v", r)
	}
	expect(t, nil, "call Ping --target "+guarded(t)+" -H authorization:one -H Authorization:two",
		result{exitFailed, "", "sent: one,two"})
}

func TestCompleteCall(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args, word string
		want       []string
	}{
		{"", "Ru", []string{"Run"}},
		{"", "copilot.bridge.v1.SessionService/Ru", []string{"copilot.bridge.v1.SessionService/Run"}},
		{"", "SessionModeService/S", []string{"SessionModeService/Set"}},
		{"Nothing", "{", nil},
		{"Run", "", nil},
		{"Run", "{", []string{`{"create":`, `{"prompt":`}},
		{"Run", `'{"pr`, []string{`{"prompt":`}},
		{"Run", `{"prompt": {"te`, []string{`{"prompt": {"text":`}},
		{"Run", `{"prompt": {"text": "a \" } {", `, []string{`{"prompt": {"text": "a \" } {", "attachments":`}},
		{"Run", `{"prompt": {"text": "a`, nil},
		{"Run", `{"prompt": {"attachments": [{"file": {}}, {"fi`, []string{`{"prompt": {"attachments": [{"file": {}}, {"file":`}},
		{"GetUsage", `{"groupBy": ["USAGE_GROUP_D`, []string{`{"groupBy": ["USAGE_GROUP_DAY"`}},
		{"ListSessions", `{"filter": {"labels": {"a`, nil},
		{"ListSessions", `{"filter": {"labels": {"a": "b"}, "wor`, []string{`{"filter": {"labels": {"a": "b"}, "workingDirectory":`}},
		{"Run", `{]}}]`, nil},
	} {
		got := completeCall(t.Context(), nil, nil, strings.Fields(tc.args), tc.word)
		for _, want := range tc.want {
			if !slices.Contains(got, want) {
				t.Errorf("%s %s: %q, want %q", tc.args, tc.word, got, want)
			}
		}
		if tc.want == nil && got != nil {
			t.Errorf("%s %s: %q", tc.args, tc.word, got)
		}
	}
}
