package config

import (
	"bytes"
	"reflect"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// Undo takes back a change that led from before to after. What was changed since then by others stays.
func (s *State) Undo(before, after State) {
	s.Object = undoObject(s.Object, before.Object, after.Object)
	undo(&s.Tools, before.Tools, after.Tools)
	undo(&s.Handling, before.Handling, after.Handling)
	undo(&s.ProviderRef, before.ProviderRef, after.ProviderRef)
	undo(&s.Continues, before.Continues, after.Continues)
	undo(&s.Labels, before.Labels, after.Labels)
	if len(after.Settings) == 0 { // forgotten
		since := s.Settings
		s.Settings = before.Settings
		for _, one := range since {
			s.Remember(one, false)
		}
	}
	s.Missing = undoMissing(s.Missing, before.Missing, after.Missing)
}

// undo sets a value to what it was before a change, unless it has changed since.
func undo[T any](now *T, before, after T) {
	if reflect.DeepEqual(*now, after) {
		*now = before
	}
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
