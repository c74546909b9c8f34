package config

import (
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// WithAgentNames returns a session's configuration in which every custom agent says what such
// a CLI needs: how it is called, by default its name, and which tools it has, by default all.
func WithAgentNames(config jsonobj.Object) jsonobj.Object {
	var agents []json.RawMessage
	if json.Unmarshal(config.Get("customAgents"), &agents) != nil {
		return config
	}
	changed := false
	for i, text := range agents {
		agent, err := jsonobj.Parse(text)
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
