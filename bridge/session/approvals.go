package session

import (
	"encoding/json"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// What a permission was answered with for the rest of the session, the CLI forgets when no
// process has the session. It is a setting like others: the rule that says the same.

// modifyRules is the method that adds rules to a session.
const modifyRules = "session.permissions.modifyRules"

// approval is what an answer approves for the rest of the session.
type approval struct {
	Kind               string   `json:"kind"`
	CommandIdentifiers []string `json:"commandIdentifiers"`
	ToolName           string   `json:"toolName"`
}

// rule is a rule of the CLI's permissions.
type rule struct {
	Kind     string  `json:"kind"`
	Argument *string `json:"argument"`
}

// rules are those that approve the same; none for what no rule is known to say exactly. To
// be asked once more is better than to allow more than was said.
func (a approval) rules() (out []rule) {
	switch a.Kind {
	case "commands":
		for i, id := range a.CommandIdentifiers {
			if id == "" || strings.HasSuffix(id, ":*") { // which would be all that begin so
				return nil
			}
			out = append(out, rule{"shell", &a.CommandIdentifiers[i]})
		}
	case "custom-tool":
		if a.ToolName != "" {
			out = append(out, rule{"custom-tool", &a.ToolName})
		}
	case "read", "write", "memory":
		out = append(out, rule{Kind: a.Kind})
	}
	return out
}

// approved remembers what a permission's end approves for the rest of the session. The
// caller holds mu.
func (s *Session) approved(rec *journal.Record) {
	var d struct {
		Result struct {
			Kind     string
			Approval approval
		}
	}
	if !dataOf(rec, &d) || d.Result.Kind != "approved-for-session" {
		return
	}
	for _, r := range d.Result.Approval.rules() {
		text, err := json.Marshal([]rule{r})
		if err != nil || len(s.settings) >= maxSettings {
			return
		}
		var params Object
		params.SetString("scope", "session")
		params.Set("add", text)
		s.rememberLocked(setting{"approval " + string(text), modifyRules, params}, false)
		s.host.Keep(s)
	}
}
