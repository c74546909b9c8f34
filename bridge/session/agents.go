package session

import (
	"encoding/json"
	"strconv"
	"strings"
)

// needsAgentNames reports whether a version of the CLI writes into its record of a session
// what an agent that was chosen says of itself, and then refuses to read it if the agent does
// not say all: before 1.0.92.
func needsAgentNames(version string) bool { return earlier(version, 92) }

// earlier reports whether a version of the CLI is 1.0.x with an x less than that.
func earlier(version string, than int) bool {
	patch, ok := strings.CutPrefix(version, "1.0.")
	patch, _, _ = strings.Cut(patch, "-")
	n, err := strconv.Atoi(patch)
	return ok && err == nil && n < than
}

// withAgentNames returns a session's configuration in which every custom agent says what such
// a CLI needs: how it is called, by default its name, and which tools it has, by default all.
func withAgentNames(config Object) Object {
	var agents []json.RawMessage
	if json.Unmarshal(config.Get("customAgents"), &agents) != nil {
		return config
	}
	changed := false
	for i, text := range agents {
		agent, err := ParseObject(text)
		if err != nil {
			continue
		}
		if agent.String("displayName") == "" && agent.String("name") != "" {
			agent.SetString("displayName", agent.String("name"))
			changed = true
		}
		if tools := agent.Get("tools"); tools == nil || string(tools) == "null" {
			agent.Set("tools", json.RawMessage(`["*"]`))
			changed = true
		}
		agents[i] = agent.JSON()
	}
	if text, err := json.Marshal(agents); changed && err == nil {
		config = config.Clone()
		config.Set("customAgents", text)
	}
	return config
}
