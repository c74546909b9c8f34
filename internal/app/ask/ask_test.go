package ask

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// callback reads a callback from JSON.
func callback(t *testing.T, text string) *bridgev1.Callback {
	t.Helper()
	cb := new(bridgev1.Callback)
	if err := protojson.Unmarshal([]byte(text), cb); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return cb
}

// Callbacks of each kind that people answer.
const (
	shell    = `{"permission":{"permissionRequest":{"shell":{"fullCommandText":"rm -rf x","intention":"tidy","warning":"gone for good"}}}}`
	write    = `{"permission":{"permissionRequest":{"write":{"fileName":"a.go","diff":"@@ -1 +1 @@\n-a\n+b"}}}}`
	unknown  = `{"permission":{"permissionRequest":{"unrecognized":"{\"kind\":\"new\",\"what\":\"everything\"}"}}}`
	question = `{"userInput":{"question":"Which?","choices":["red","blue"]}}`
	closed   = `{"userInput":{"question":"Which?","choices":["red","blue"],"allowFreeform":false}}`
	plan     = `{"exitPlanMode":{"summary":"tidy","planContent":"1. rm","recommendedAction":"go","actions":["go"]}}`
	oneField = `{"elicitation":{"message":"Name?","requestedSchema":{"propertiesJson":"{\"name\":{\"type\":\"string\"}}","required":["name"]}}}`
	form     = `{"elicitation":{"message":"Who?","requestedSchema":{"propertiesJson":"{\"name\":{\"type\":\"string\",` +
		`\"enum\":[\"a\",\"b\"]},\"age\":{\"type\":\"integer\"},\"ok\":{\"type\":\"boolean\"},` +
		`\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"x\"]}}}","required":["name"]}}}`
	page    = `{"elicitation":{"message":"Sign in","mode":"ELICITATION_REQUESTED_MODE_URL","url":"https://a.example"}}`
	hook    = `{"kind":"CALLBACK_KIND_HOOK","hook":{"hookType":"x"}}`
	unsent  = `{"kind":"CALLBACK_KIND_PERMISSION","totalBytes":2000000}`
	tooCall = `{"toolCall":{"toolName":"t","argumentsJson":"{\"a\":1}"}}`
	limit   = `{"autoModeSwitch":{"errorCode":"rate_limited"}}`
)

func TestQuestions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		callback string
		form     Form
		// All are in the title, the detail, the notes, the choices or the fields.
		shows []string
	}{
		"shell":    {shell, Permission, []string{"Run a command", "rm -rf x", "Purpose: tidy", "Warning: gone for good"}},
		"write":    {write, Permission, []string{"Write to a.go", "-a\n+b"}},
		"unknown":  {unknown, Permission, []string{"everything"}},
		"question": {question, Text, []string{"Which?", "red", "blue"}},
		"plan":     {plan, Approval, []string{"tidy", "1. rm"}},
		"form":     {form, Fields, []string{"Who?", "name (required) [a, b]", "age", "ok", "tags [x]"}},
		"page":     {page, Approval, []string{"Sign in", "https://a.example", "Open the page"}},
		"hook":     {hook, Other, []string{"hook"}},
		"unsent":   {unsent, Permission, []string{"permission", "2000000 bytes"}},
		"limit":    {limit, Approval, []string{"rate_limited"}},
	} {
		q := Of(callback(t, tc.callback))
		all := append([]string{q.Title, q.Detail}, append(q.Notes, q.Choices...)...)
		for _, f := range q.Fields {
			all = append(all, f.Line())
		}
		for _, want := range tc.shows {
			if !strings.Contains(strings.Join(all, "\n"), want) {
				t.Errorf("%s: %q is missing in %q", name, want, all)
			}
		}
		if q.Form != tc.form || q.Hint() == "" {
			t.Errorf("%s: form %v, hint %q", name, q.Form, q.Hint())
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	reject := func(feedback string) string { return `{"reject":{"feedback":"` + feedback + `"}}` }
	for name, tc := range map[string]struct {
		callback, typed string
		// The answer as JSON; or the beginning of the error.
		want, err string
	}{
		"yes":               {shell, "y", `{"approve":{}}`, ""},
		"YES":               {shell, " Yes ", `{"approve":{}}`, ""},
		"session":           {shell, "s", `{"permission":{"approveForSession":{}}}`, ""},
		"no":                {shell, "n", `{"reject":{}}`, ""},
		"no, and why":       {shell, "no, use make clean", reject("use make clean"), ""},
		"not a decision":    {shell, "yes please do", "", "y approves once"},
		"not a decision 2":  {shell, "nothing", "", "y approves once"},
		"nothing":           {shell, "", "", "y approves once"},
		"unsent":            {unsent, "n", `{"reject":{}}`, ""},
		"plan":              {plan, "y", `{"exitPlanMode":{"approved":true,"selectedAction":"go"}}`, ""},
		"plan, session":     {plan, "s", "", "y approves"},
		"plan refused":      {plan, "n later", `{"exitPlanMode":{"feedback":"later"}}`, ""},
		"number":            {question, "2", `{"userInput":{"answer":"blue"}}`, ""},
		"choice":            {question, "red", `{"userInput":{"answer":"red"}}`, ""},
		"own words":         {question, "green", `{"userInput":{"answer":"green","wasFreeform":true}}`, ""},
		"number too high":   {question, "3", `{"userInput":{"answer":"3","wasFreeform":true}}`, ""},
		"not a choice":      {closed, "green", "", `"green" is not one of the choices`},
		"empty":             {question, " ", "", "type a number"},
		"one field":         {oneField, "Ann=e", `{"elicitation":{"action":"UI_ELICITATION_RESPONSE_ACTION_ACCEPT","content":{"name":{"stringValue":"Ann=e"}}}}`, ""},
		"declined":          {oneField, "n", `{"elicitation":{"action":"UI_ELICITATION_RESPONSE_ACTION_DECLINE"}}`, ""},
		"fields":            {form, "name=a; age=3;ok=yes;tags=x, y", `{"elicitation":{"action":"UI_ELICITATION_RESPONSE_ACTION_ACCEPT","content":{"name":{"stringValue":"a"},"age":{"doubleValue":3},"ok":{"boolValue":true},"tags":{"list":{"items":["x","y"]}}}}}`, ""},
		"JSON":              {form, `{"name":"b","tags":["x"]}`, `{"elicitation":{"action":"UI_ELICITATION_RESPONSE_ACTION_ACCEPT","content":{"name":{"stringValue":"b"},"tags":{"list":{"items":["x"]}}}}}`, ""},
		"broken JSON":       {form, `{"name"`, "", "the values are not a JSON object"},
		"field is missing":  {form, "age=3", "", "the field name is missing"},
		"no such field":     {form, "name=a;size=3", "", `the form has no field "size"`},
		"not of the values": {form, "name=c", "", `name: "c" is not one of a, b`},
		"not a number":      {form, "name=a;age=old", "", `age: "old" is not a number`},
		"not a boolean":     {form, "name=a;ok=perhaps", "", `ok: "perhaps" is not yes or no`},
		"not a pair":        {form, "a", "", `"a" is not NAME=VALUE`},
		"page":              {page, "y", `{"approve":{}}`, ""},
		"page refused":      {page, "n", `{"elicitation":{"action":"UI_ELICITATION_RESPONSE_ACTION_DECLINE"}}`, ""},
		"tool":              {tooCall, "sunny", `{"tool":{"text":"sunny"}}`, ""},
		"hook":              {hook, "y", "", "a program answers this"},
	} {
		q := Of(callback(t, tc.callback))
		reply, err := q.Parse(tc.typed)
		var got *bridgev1.Answer
		if err == nil {
			got, err = q.Answer(reply)
		}
		if tc.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("%s: error %v, want %q", name, err, tc.err)
			}
			continue
		}
		want := new(bridgev1.Answer)
		if bad := protojson.Unmarshal([]byte(tc.want), want); bad != nil {
			t.Fatalf("%s: %v", name, bad)
		}
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
	}
}

// Decisions of scripts that a question does not take are refused.
func TestRefusedDecisions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		callback string
		reply    Reply
	}{
		"approve a question":  {question, Reply{Action: Approve}},
		"deny a question":     {question, Reply{Action: Deny}},
		"session for a plan":  {plan, Reply{Action: ApproveForSession}},
		"text for a command":  {shell, Reply{Answer, "y"}},
		"approve a hook":      {hook, Reply{Action: Approve}},
		"approve a form":      {form, Reply{Action: Approve}},
		"no decision":         {shell, Reply{}},
		"text for permission": {unsent, Reply{Answer, "x"}},
	} {
		if got, err := Of(callback(t, tc.callback)).Answer(tc.reply); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}
