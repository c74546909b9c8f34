package sessions

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Limits of labels.
const (
	MaxLabels          = 64
	MaxLabelCharacters = 256 // of a value
)

var labelKey = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,63}$`)

// CheckLabels rejects labels beyond the limits. The error names the field.
func CheckLabels(labels map[string]string, field string) error {
	if len(labels) > MaxLabels {
		return fault.New(fault.InvalidField, "%s has %d labels, more than %d", field, len(labels), MaxLabels).
			WithField(field)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !labelKey.MatchString(key) {
			return fault.New(fault.InvalidField,
				"%s has the key %.100q: a key has 1 to 63 of the characters A-Z, a-z, 0-9, '.', '_', '/' and '-'",
				field, key).WithField(field)
		}
		if n := utf8.RuneCountInString(labels[key]); n > MaxLabelCharacters {
			at := fmt.Sprintf("%s[%q]", field, key)
			return fault.New(fault.InvalidField, "%s has %d characters, more than %d", at, n, MaxLabelCharacters).
				WithField(at)
		}
	}
	return nil
}

// CheckLabelUpdate rejects an update of labels that no session could take.
func CheckLabelUpdate(set map[string]string, remove []string) error {
	if err := CheckLabels(set, "set"); err != nil {
		return err
	}
	if len(remove) > MaxLabels {
		return fault.New(fault.InvalidField, "remove has %d keys, more than %d", len(remove), MaxLabels).
			WithField("remove")
	}
	for i, key := range remove {
		at := fmt.Sprintf("remove[%d]", i)
		if !labelKey.MatchString(key) {
			return fault.New(fault.InvalidField, "%s is %.100q, which is no key of a label", at, key).WithField(at)
		}
		if _, both := set[key]; both {
			return fault.New(fault.InvalidField, "%s is %q, which is also in set", at, key).WithField(at)
		}
	}
	return nil
}

// UpdatedLabels returns labels after an update that CheckLabelUpdate accepts. It does not change them in place. It returns
// LIMIT_EXCEEDED if there would be more than MaxLabels.
func UpdatedLabels(labels, set map[string]string, remove []string) (map[string]string, error) {
	out := make(map[string]string, len(labels)+len(set))
	maps.Copy(out, labels)
	for _, key := range remove {
		delete(out, key)
	}
	maps.Copy(out, set)
	if len(out) > MaxLabels {
		return nil, fault.New(fault.LimitExceeded, "the session would have %d labels, more than %d: remove some",
			len(out), MaxLabels).WithField("set").With("limit", "session labels")
	}
	return out, nil
}

// HasLabels reports whether labels include all that are wanted, with these values.
func HasLabels(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if have, ok := labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}

// CheckFilter rejects a filter whose labels are beyond the limits. field is the filter's path in the request.
func CheckFilter(f *bridgev1.SessionFilter, field string) error {
	return CheckLabels(f.GetLabels(), field+".labels")
}

// FitsFilter reports whether a filter selects a session. A nil filter selects all.
func FitsFilter(s *bridgev1.Session, f *bridgev1.SessionFilter) bool {
	fit := func(want, have string) bool { return want == "" || want == have }
	c := s.GetContext()
	return fit(f.GetWorkingDirectory(), c.GetWorkingDirectory()) && fit(f.GetGitRoot(), c.GetGitRoot()) &&
		fit(f.GetRepository(), c.GetRepository()) && fit(f.GetBranch(), c.GetBranch()) &&
		HasLabels(s.GetLabels(), f.GetLabels())
}

// NodesUnfit is the error for labels that no server has which could have the session.
func NodesUnfit(needs map[string]string) *fault.Error {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(needs)) {
		pairs = append(pairs, key+"="+needs[key])
	}
	text := strings.Join(pairs, ",")
	return fault.New(fault.NodeLabelsUnmet, "no server that takes the session has the labels %s", text).
		With("labels", text)
}
