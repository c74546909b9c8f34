package config

import (
	"bytes"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// stored are the members that the CLI stores with a session's history. A resume without them restores the stored
// values.
var stored = []string{
	"agent", "contextTier", "model", "reasoningEffort", "reasoningSummary", "sessionLimits", "workingDirectory",
}

// clearedLoaded are the lists and maps that the CLI clears in a loaded session if a resume has them without elements.
// It keeps any other list or map until it loads the session again. CLIs 1.0.81 and 1.0.102 do the same.
var clearedLoaded = []string{
	"availableTools", "customAgents", "disabledSkills", "excludedBuiltinAgents", "excludedTools",
	"instructionDirectories", "mcpServers", "pluginDirectories", "skillDirectories",
}

// Remove removes members from the configuration. It refuses members that a CLI would restore from the history.
func (s *State) Remove(names []string) error {
	object := s.Object.Clone()
	for _, name := range names {
		if object.Get(name) != nil && slices.Contains(stored, name) {
			return fault.New(fault.InvalidField,
				"the CLI stores %s with the session's history: set another value", name).WithField("update_mask")
		}
		object.Set(name, nil)
	}
	s.Object = object
	return nil
}

// NeedsLoad reports whether a loaded session keeps something of a configuration that the next one has cleared: the CLI
// must load the session again.
func NeedsLoad(before, after jsonobj.Object) bool {
	for _, m := range before {
		now := after.Get(m.Key)
		removed := now == nil
		cleared := !withoutElements(m.Value) && withoutElements(now) && !slices.Contains(clearedLoaded, m.Key)
		if removed || cleared {
			return true
		}
	}
	return false
}

// withoutElements reports whether a value is an empty list or map.
func withoutElements(value []byte) bool {
	trimmed := bytes.TrimSpace(value)
	if len(trimmed) < 2 {
		return false
	}
	inner := bytes.TrimSpace(trimmed[1 : len(trimmed)-1])
	return len(inner) == 0 && (trimmed[0] == '[' || trimmed[0] == '{')
}
