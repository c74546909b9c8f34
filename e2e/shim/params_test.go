package shim

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// openSession is the session of the calls below.
const openSession = "3f0c1f4e-5a10-4c39-9d9e-0c7a2f1d8b11"

// with returns parameters that lack a member, and that have bad values of it. Of the others, rest is a list.
func with(member, rest string, values ...string) (params []string) {
	params = []string{"{" + rest + "}"}
	if rest != "" {
		rest = "," + rest
	}
	for _, v := range values {
		params = append(params, `{"`+member+`":`+v+rest+"}")
	}
	return params
}

// wrong are values of the wrong type for a string, and an empty one.
var wrong = []string{`null`, `5`, `-1.5`, `true`, `{}`, `[]`, `""`}

// calls are calls of one method with several parameters.
type calls struct {
	method string
	params []string
}

// storedParams are the methods whose parameters the shim or the bridge stores or uses, with what the CLI refuses. Those of
// one row are called in one process, in order.
func storedParams() map[string][]calls {
	const session = `"sessionId":"` + openSession + `"`
	files := func(member string, values ...string) []string {
		all := map[string]string{"initialCwd": `"/"`, "sessionStatePath": `"/s"`, "conventions": `"posix"`}
		var rest []string
		for _, name := range []string{"initialCwd", "sessionStatePath", "conventions"} {
			if name != member {
				rest = append(rest, `"`+name+`":`+all[name])
			}
		}
		return with(member, strings.Join(rest, ","), values...)
	}
	windows := `"sessionStatePath":"/s","conventions":"windows"`
	rows := map[string][]calls{
		"connect": {{"connect", append(with("enableGitHubTelemetryForwarding", "", `5`, `"x"`, `null`), with("supportedTaskKinds", "",
			`5`, `null`, `{}`, `[5]`, `["x"]`, `[]`, `["client"]`)...)},
			{"connect", append(with("clientInfo", "", `5`, `""`, `null`, `{"editorName":5}`, `{"name":"x"}`),
				with("token", "", wrong...)...)},
			{"connect", []string{`null`, `5`, `"x"`, `[1]`, `[true,null,null,5]`, `{"other":1}`, `{"token":"x"}`}}},
		"files": {{"sessionFs.setProvider", files("initialCwd", append(wrong, `"rel/x"`, `"./x"`, `"C:\\x"`)...)},
			{"sessionFs.setProvider", with("initialCwd", windows, `"rel"`, `"C:"`, `"1:/x"`, `""`)},
			{"sessionFs.setProvider", files("sessionStatePath", `null`, `5`, `{}`)},
			{"sessionFs.setProvider", files("conventions", append(wrong, `"other"`)...)},
			{"sessionFs.setProvider", files("capabilities", `null`, `5`, `""`, `{"sqlite":5}`, `{"binary":null}`)},
			{"sessionFs.setProvider", []string{`null`, `5`, `"x"`, `[]`, `["/"]`, `[5]`, `["/","/s","posix"]`, `["/","/s","posix",{},5]`}},
			{"sessionFs.setProvider", with("initialCwd", windows, `"C:\\x"`, `"C:/x"`, `"/x"`, `"\\\\server\\x"`)}},
		"models": {{"llmInference.httpResponseStart", append(with("requestId", `"status":"x"`, wrong...), `5`, `[]`)},
			{"llmInference.httpResponseChunk", append(with("requestId", `"data":5,"error":7`, wrong...), `5`, `[]`)},
			{"llmInference.setProvider", []string{`5`, `{}`}}},
		"opening": {{"session.create", append(with("sessionId", "", `5`, `{}`)[1:], `5`, `"x"`, `[]`, `[{}]`)},
			{"session.resume", with("sessionId", "", `null`, `5`, `""`)}},
		"ending": {{"session.destroy", with("sessionId", "", wrong...)}, {"session.detach", with("sessionId", "", wrong...)},
			{"session.shutdown", with("sessionId", "", wrong...)}, {"session.delete", with("sessionId", "", wrong...)}},
		"session": {
			{"session.tools.set", append(with("tools", session, `null`, `5`, `""`, `{}`, `[5]`, `[{}]`, `[{"name":5}]`,
				`[null]`, `["x"]`, `[["x"]]`, `[{"NAME":"x"}]`, `[{"name":"x","description":5}]`, `[{"name":"x","description":null}]`,
				`[{"name":"x","parameters":5}]`, `[{"name":"x","parameters":null}]`, `[{"name":"x","parameters":[]}]`,
				`[{"name":"x","parameters":"x"}]`, `[{"name":"x","overridesBuiltInTool":"x"}]`,
				`[{"name":"x","skipPermission":5}]`, `[{"name":"x","skipPermission":null}]`, `[{"name":"x","metadata":5}]`,
				`[{"name":"x","defer":5}]`, `[{"name":"x","defer":"x"}]`, `[{"name":"x","instructions":5}]`, `[{"name":"x","other":5}]`,
				`[{"name":"x","title":5}]`, `[{"name":"x","isTerminal":5}]`, `[{"name":"x","namespace":5}]`, `[{"name":"x","namespace":{}}]`,
				`[{"name":"x"},{"name":"x"}]`, `[{"name":""}]`, `[{"name":"x y"}]`),
				with("sessionId", `"tools":[]`, `""`)...)},
			{"session.eventLog.registerInterest", with("eventType", session, `null`, `5`, `{}`)},
			{"session.eventLog.releaseInterest", with("handle", session, `null`, `5`, `{}`, `""`)},
			{"session.send", with("sessionId", `"prompt":"x"`, wrong...)},
			{"session.abort", []string{`5`, `"x"`, `[1]`, `{"sessionId":""}`}},
		},
	}
	for _, method := range []string{
		"session.tools.handlePendingToolCall", "session.permissions.handlePendingPermissionRequest",
		"session.ui.handlePendingElicitation", "session.ui.handlePendingSampling",
		"session.ui.handlePendingSessionLimitsExhausted", "session.ui.handlePendingUserInput",
		"session.ui.handlePendingExitPlanMode", "session.ui.handlePendingAutoModeSwitch",
		"session.commands.handlePendingCommand", "session.commands.respondToQueuedCommand",
		"session.mcp.oauth.handlePendingRequest", "session.mcp.headers.handlePendingHeadersRefreshRequest",
	} {
		params := with("requestId", session, wrong...)
		for _, member := range []string{"result", "response", "error"} {
			params = append(params, with(member, session+`,"requestId":"none"`, append(wrong, `{"kind":"bogus"}`)...)...)
		}
		rows["answers"] = append(rows["answers"], calls{method, params})
	}
	return rows
}

// handles are what registerInterest returns.
var handles = regexp.MustCompile(`"handle":"[^"]*"`)

// TestShimChecksAsTheCLI calls methods with missing and wrong parameters that the shim or the bridge stores, or uses
// itself. The error has to be the CLI's, at once.
func TestShimChecksAsTheCLI(t *testing.T) {
	t.Parallel()
	direct, shim := standIns(t)
	for name, row := range storedParams() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask := func(command []string) (answers []string) {
				p := harness.StartSDKProgram(t, t.Context(), []string{"HOME=" + harness.RealDir(t)}, command...)
				if greeting := p.Call("connect", `{}`); !strings.Contains(greeting, clibin.PinnedVersion) {
					t.Skipf("the texts are of CLI %s: %s", clibin.PinnedVersion, greeting)
				}
				if name == "session" || name == "answers" {
					p.Call("session.create", `{"sessionId":"`+openSession+`","model":"m","requestPermission":true,
						"provider":{"type":"openai","baseUrl":"http://127.0.0.1:9/v1"}}`)
				}
				for _, c := range row {
					for _, params := range c.params {
						answer := handles.ReplaceAllString(p.Call(c.method, params), `"handle":""`)
						answers = append(answers, fmt.Sprintf("%s %s: %s", c.method, params, answer))
					}
				}
				return answers
			}
			want, got := ask(direct), ask(shim)
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("\n got %s\nwant %s", got[i], want[i])
				}
			}
		})
	}
}
