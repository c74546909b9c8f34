package terminal

import (
	"strings"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// shells are the commands by which a shell gets the completion, as the pages and the help of completion say it.
var shells = map[string]string{
	"bash": "source <(copilot-grpc completion bash)",
	"zsh":  "exec zsh -f; autoload -U compinit; compinit -u -D; source <(copilot-grpc completion zsh)",
	// A suggestion, which is not what Tab completes, would be on the line too.
	"fish": "exec env HOME=$PWD fish --no-config; function fish_prompt; echo '@ '; end; " +
		"set -g fish_autosuggestion_enabled 0; copilot-grpc completion fish | source",
}

// In a real bash, zsh and fish, Tab completes commands, flags and their values, sessions, contexts and methods, and
// where there are several, shows them with what they are: sessions with their titles.
func TestCompletionInShells(t *testing.T) {
	t.Parallel()
	for name, starts := range shells {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.Installed(t, name, "")
			d := newServer(t)
			for id, prompt := range map[string]string{"tour": "What is the weather?", "other": ""} {
				s, err := d.Client.CreateSession(d.Ctx, copilot.SessionOptions{ID: id})
				if err != nil {
					t.Fatal(err)
				}
				if prompt != "" {
					if _, err := s.SendAndWait(d.Ctx, prompt); err != nil {
						t.Fatal(err)
					}
				}
			}
			p := sits(d, 160, 50)
			for line := range strings.SplitSeq(starts, "; ") {
				p.types(line)
			}
			p.types("copilot-grpc context add prod --target dns:///copilot.example:7443; echo is ready")
			p.waits("\nis ready")
			p.completes(name)
		})
	}
}

// completes presses Tab in a shell.
func (p *person) completes(shell string) {
	p.T.Helper()
	for _, tc := range []struct {
		line  string
		shown []string // by the first Tab that has something to show; the first of them continues the line
	}{
		{"doc", []string{"tor"}},
		{"sessions exp", []string{"ort"}},
		{"sessions list --lab", []string{"el"}},
		{"run Hello --approve r", []string{"eads"}},
		{"sessions show t", []string{"our"}},
		{"run Hello --session to", []string{"ur"}},
		{"context use p", []string{"rod"}},
		{"sessions list --context pr", []string{"od"}},
		{"call GetServ", []string{"erInfo"}},
		{"describe RunReq", []string{"uest"}},
		{"call GetSe", []string{"", "GetServerInfo", "GetSession"}},
		{"events ", []string{"", "other", "loaded", "tour", "What is the weather?"}},
		{"top --in", []string{"terval"}},
		{"top --", []string{"", "--interval", "between two looks at the server"}},
		{`call Ping '{"me`, []string{`ssage":`}},
	} {
		if shell != "fish" && strings.Contains(tc.line, "'") {
			continue // only fish completes within quotation marks
		}
		p.tmux("send-keys", "-l", "--", "copilot-grpc "+tc.line)
		p.waits("@ copilot-grpc " + strings.TrimSuffix(tc.line, " "))
		p.presses("Tab")
		if shell == "bash" && len(tc.shown) > 1 {
			p.presses("Tab") // the first one only rings
		}
		p.waits(append([]string{"@ copilot-grpc " + tc.line + tc.shown[0]}, tc.shown[1:]...)...)
		p.presses("C-u", "C-l")
	}
}
