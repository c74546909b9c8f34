package config

import (
	"bytes"
	"maps"
	"reflect"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// Undo takes back a change that led from before to after. What was changed since then by others stays.
func (s *State) Undo(before, after State) {
	s.Object = undoObject(s.Object, before.Object, after.Object)
	if reflect.DeepEqual(s.Tools, after.Tools) {
		s.Tools = before.Tools
	}
	if reflect.DeepEqual(s.Handling, after.Handling) {
		s.Handling = before.Handling
	}
	if s.ProviderRef == after.ProviderRef {
		s.ProviderRef = before.ProviderRef
	}
	if s.Continues == after.Continues {
		s.Continues = before.Continues
	}
	if maps.Equal(s.Labels, after.Labels) {
		s.Labels = before.Labels
	}
	if len(after.Settings) == 0 { // forgotten
		since := s.Settings
		s.Settings = before.Settings
		for _, one := range since {
			s.Remember(one, false)
		}
	}
	s.Missing = undoMissing(s.Missing, before.Missing, after.Missing)
}

// undoObject returns now with those members as in before that are still as in after.
func undoObject(now, before, after jsonobj.Object) jsonobj.Object {
	out := before.Clone()
	changed := func(key string) bool { return !bytes.Equal(now.Get(key), after.Get(key)) }
	for _, m := range before {
		if changed(m.Key) {
			out.Set(m.Key, now.Get(m.Key))
		}
	}
	for _, m := range now {
		if changed(m.Key) {
			out.Set(m.Key, m.Value)
		}
	}
	return out
}

// undoMissing returns before without the paths that were in after and are gone now, and with those that came since.
func undoMissing(now, before, after []string) []string {
	var out []string
	for _, path := range before {
		if !slices.Contains(after, path) || slices.Contains(now, path) {
			out = append(out, path)
		}
	}
	for _, path := range now {
		if !slices.Contains(out, path) && !slices.Contains(after, path) {
			out = append(out, path)
		}
	}
	return out
}
