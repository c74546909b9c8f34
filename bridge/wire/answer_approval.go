package wire

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// The CLI treats an approve-for-session without an approval as an approve-once. The functions below add the
// approval that the CLI's own interface would offer for the request.

// forSession is the kind of a decision that approves for the rest of the session.
const forSession = "approve-for-session"

func isNull(text json.RawMessage) bool { return len(text) == 0 || string(text) == "null" }

// completed is a decision that says what it approves for the session, if it is one that has
// to: with what the request is about, where its giver left that out.
func completed(p *callback.Pending, decision jsonobj.Object, at string) (jsonobj.Object, error) {
	given := decision.Get("approval")
	if decision.String("kind") != forSession || !isNull(given) && string(given) != "{}" || !isNull(decision.Get("domain")) {
		return decision, nil
	}
	asked, err := callback.PermissionPromptOf(p)
	if err == nil && asked.Kind == "path" { // the directories, which the CLI knows itself
		return decision, nil
	}
	member, value := prompt(asked).approval()
	if err != nil || member == "" {
		return nil, fault.New(fault.AnswerInvalid, "a %q cannot be approved for the session in general: approve it once, or set the approval", asked.Kind).
			WithField(at+".approve_for_session.approval").With("callback_id", p.ID)
	}
	decision = decision.Clone()
	decision.Set(member, value)
	return decision, nil
}

// prompt is a permission request.
type prompt callback.PermissionPrompt

// approval returns the member of a decision that approves the request for the session, and its value. It
// returns "" if every approval would allow more than the request.
func (q prompt) approval() (member string, value json.RawMessage) {
	members := jsonobj.Object{}
	members.SetString("kind", q.Kind)
	if !q.offered() {
		return "", nil
	}
	switch q.Kind {
	case "commands", "shell":
		members.SetString("kind", "commands")
		text, err := json.Marshal(q.CommandIdentifiers)
		if err != nil {
			return "", nil
		}
		members.Set("commandIdentifiers", text)
	case "url":
		origin := originOf(q.URL)
		if origin == "" {
			return "", nil
		}
		return "domain", quote(origin)
	case "read", "write", "memory":
	case "mcp":
		if isNull(q.ServerName) || isNull(q.ToolName) { // null would be all tools of the server
			return "", nil
		}
		members.Set("serverName", q.ServerName)
		members.Set("toolName", q.ToolName)
	default:
		narrowing := q.narrowing()
		if len(narrowing) == 0 {
			return "", nil
		}
		for _, m := range narrowing {
			if isNull(m.Value) { // without it, all of the kind would be approved
				return "", nil
			}
			members.Set(m.Key, m.Value)
		}
	}
	return "approval", members.JSON()
}

// offered reports whether the CLI offers an approval for the session. A command it does not
// offer one for is approved to the letter, or not at all.
func (q prompt) offered() bool {
	switch {
	case q.CanPersistApproval != nil && !*q.CanPersistApproval:
		return false
	case q.Kind != "commands" && q.Kind != "shell":
		return q.CanOfferSessionApproval == nil || *q.CanOfferSessionApproval
	case len(q.CommandIdentifiers) == 0:
		return false
	case q.CanOfferSessionApproval != nil && *q.CanOfferSessionApproval:
		return true
	}
	return len(q.CommandIdentifiers) == 1 && q.CommandIdentifiers[0] == q.FullCommandText && !strings.HasSuffix(q.FullCommandText, ":*")
}

// narrowing are the members that say which of its kind is approved.
func (q prompt) narrowing() jsonobj.Object {
	switch q.Kind {
	case "custom-tool":
		return jsonobj.Object{{Key: "toolName", Value: q.ToolName}}
	case "extension-management":
		return jsonobj.Object{{Key: "operation", Value: q.Operation}}
	case "extension-permission-access":
		return jsonobj.Object{{Key: "extensionName", Value: q.ExtensionName}}
	case "extension-env-access":
		return jsonobj.Object{{Key: "extensionName", Value: q.ExtensionName}, {Key: "environmentVariables", Value: q.EnvironmentVariables}}
	case "factory", "workflow":
		return jsonobj.Object{{Key: "approvalKey", Value: q.ApprovalKey}}
	}
	return nil
}

// originOf is the origin that an approval of a URL is for, as the CLI writes it: with the
// port, unless it is the scheme's own. None for what the CLI might read in another way.
func originOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Hostname() == "" {
		return ""
	}
	host := strings.ToLower(u.Host)
	if strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-:[]") != "" {
		return ""
	}
	own := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	return u.Scheme + "://" + strings.TrimSuffix(host, own)
}
