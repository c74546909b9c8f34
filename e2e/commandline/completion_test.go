package commandline

import (
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// typeTab defines what happens in bash at a Tab at the end of a line: press prints what bash offers. compopt works at a
// real Tab only.
const typeTab = `source <(copilot-grpc completion bash)
compopt() { :; }
press() {
	COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMP_KEY=9 COMPREPLY=()
	COMP_WORDS=($1) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	__start_copilot-grpc 2>&1
	printf '%s\n' "${COMPREPLY[@]}"
}
`

// A bash that has read the script completes commands, flags and their values, sessions, contexts and methods.
func TestBashCompletion(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	p := newPerson(t)
	if _, stderr, code := p.types("copilot-grpc sessions create --id tour && copilot-grpc sessions create --id other && " +
		"copilot-grpc context add prod --target dns:///copilot.example:7443"); code != 0 {
		t.Fatal(stderr)
	}
	for line, want := range map[string]string{
		"copilot-grpc doc":                       "doctor",
		"copilot-grpc sessions exp":              "export",
		"copilot-grpc sessions list --lab":       "--label",
		"copilot-grpc doctor -o jsonl":           "jsonl",
		"copilot-grpc run Hello --approve r":     "reads",
		"copilot-grpc sessions show t":           "tour",
		"copilot-grpc events --no-follow o":      "other",
		"copilot-grpc run Hello --session to":    "tour",
		"copilot-grpc context use p":             "prod",
		"copilot-grpc sessions list --context p": "prod",
		"copilot-grpc call GetSe":                "GetServerInfo GetSession",
		"copilot-grpc describe RunReq":           "RunRequest",
		"copilot-grpc serve --node-name ":        "",
	} {
		stdout, stderr, _ := p.types(typeTab + "press '" + line + "'")
		var offered []string
		for one := range strings.Lines(stdout) {
			if fields := strings.Fields(one); len(fields) > 0 { // the rest describes it
				offered = append(offered, fields[0])
			}
		}
		if got := strings.Join(offered, " "); got != want || stderr != "" {
			t.Errorf("%s: bash offers %q and prints %q, want %q", line, stdout, stderr, want)
		}
	}
}
