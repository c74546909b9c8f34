package cli

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"":                             "copilot.bridge.v1.EventService ",
		"Run":                          "copilot-grpc call Run '{",
		"SessionService/Run":           "Run(RunRequest) returns (stream RunResponse)\n",
		"SessionService.Run":           "  Run sends a prompt and streams the session's events",
		"SessionModeService/Set":       "copilot-grpc call SessionModeService/Set '{",
		"EventService":                 "  Subscribe(SubscribeRequest) returns (stream SubscribeResponse)\n      Subscribe streams",
		"RunRequest":                   "  sessionId  string  (one of session)\n      An existing session.\n",
		"copilot.bridge.v1.RunRequest": "message copilot.bridge.v1.RunRequest\n",
		"UsageGroup":                   "enum copilot.bridge.v1.UsageGroup\n",
		"USAGE_GROUP_DAY":              "enum copilot.bridge.v1.UsageGroup\n",
		"ListSessionsRequest":          "  filter  SessionFilter\n",
		"SessionFilter":                "  labels  map<string, string>\n",
	} {
		r := run(t, nil, "", append([]string{"describe"}, strings.Fields(name)...)...)
		if r.code != exitOK || !strings.Contains(r.stdout, want) {
			t.Errorf("%s: %+v, want %s", name, r, want)
		}
	}
	for name, want := range map[string]string{
		"RunReqest":    `did you mean "RunRequest"?`,
		"Session/Rnu":  `there is no service "Session"`,
		"Sesionservic": `did you mean "SessionService"?`,
	} {
		if r := run(t, nil, "", "describe", name); r.code != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v, want %s", name, r, want)
		}
	}
	r := run(t, nil, "", "__complete", "describe", "RunReq")
	if !strings.Contains(r.stdout, "RunRequest\n") || strings.Contains(r.stdout, "SessionService") {
		t.Errorf("completion: %+v", r)
	}
}

// The example of every method is a request of it, and has fields if the request has any but json_extra.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, m := range methodsOf(packages...) {
		text, err := exampleRequest(m.Input())
		if err != nil {
			t.Fatal(err)
		}
		next := requests(bytes.NewReader(text), m.Input())
		if _, err := next(); err != nil {
			t.Errorf("%s: %s: %v", fullName(m), text, err)
		}
		if _, err := next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %s is not one request: %v", fullName(m), text, err)
		}
		if len(exampleFields(m.Input(), 0)) > 0 && string(text) == "{}" {
			t.Errorf("%s: the example is empty", fullName(m))
		}
	}
}

// All services and methods of this project have comments.
func TestCommentsAreComplete(t *testing.T) {
	t.Parallel()
	texts, err := readComments()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range methodsOf("copilot.bridge.v1", "copilot.cli.v1") {
		if texts[m.FullName()] == "" || texts[m.Parent().FullName()] == "" {
			t.Errorf("%s or its service has no comment", m.FullName())
		}
	}
}
