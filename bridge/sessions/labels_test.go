package sessions

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

type labels = map[string]string

// many returns n labels.
func many(n int) labels {
	out := labels{}
	for i := range n {
		out[fmt.Sprint("k", i)] = "v"
	}
	return out
}

func TestCheckLabels(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 63)
	for name, test := range map[string]struct {
		labels labels
		field  string // of the error; empty for none
	}{
		"none":               {nil, ""},
		"as many as may be":  {many(MaxLabels), ""},
		"one too many":       {many(MaxLabels + 1), "at"},
		"every character":    {labels{"aZ09._/-": "any value: \u2028\n"}, ""},
		"an empty value":     {labels{"k": ""}, ""},
		"a long key":         {labels{long: "v"}, ""},
		"a longer key":       {labels{long + "k": "v"}, "at"},
		"an empty key":       {labels{"": "v"}, "at"},
		"a space in a key":   {labels{"a b": "v"}, "at"},
		"a line after a key": {labels{"k\n": "v"}, "at"},
		"a long value":       {labels{"k": strings.Repeat("ä", 256)}, ""},
		"a longer value":     {labels{"k": strings.Repeat("ä", 257)}, `at["k"]`},
	} {
		err := CheckLabels(test.labels, "at")
		check(t, name, err, fault.InvalidField, test.field)
	}
}

// check compares an error with the reason and the field that it must have; an empty field wants no error.
func check(t *testing.T, name string, err error, reason fault.Reason, field string) {
	t.Helper()
	var got string
	if f, ok := err.(*fault.Error); ok {
		got = f.Field
	}
	if (err != nil) != (field != "") || got != field || err != nil && fault.ReasonOf(err) != reason {
		t.Errorf("%s: %v, want an error at %q", name, err, field)
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		have, set labels
		remove    []string
		want      labels
		field     string // of the error of CheckLabelUpdate
		full      bool   // UpdatedLabels refuses it
	}{
		"nothing":         {have: labels{"a": "1"}, want: labels{"a": "1"}},
		"one more":        {have: many(1), set: labels{"k1": "v"}, want: many(2)},
		"another value":   {have: labels{"a": "1"}, set: labels{"a": "2"}, want: labels{"a": "2"}},
		"removed":         {have: labels{"a": "1", "b": "2"}, remove: []string{"a", "none"}, want: labels{"b": "2"}},
		"set and removed": {set: labels{"a": "1"}, remove: []string{"b", "a"}, field: "remove[1]"},
		"no key":          {remove: []string{"a b"}, field: "remove[0]"},
		"no value":        {set: labels{"a": strings.Repeat("v", 257)}, field: `set["a"]`},
		"too many keys":   {remove: make([]string, MaxLabels+1), field: "remove"},
		"full":            {have: many(MaxLabels), set: labels{"more": "v"}, full: true},
		"full, and makes room": {
			have: many(MaxLabels), set: labels{"k0": "w"}, remove: []string{"k1"}, want: replaced(),
		},
		"full, and stays so":    {have: many(MaxLabels), want: many(MaxLabels)},
		"the last one":          {have: labels{"a": "1"}, remove: []string{"a"}, want: labels{}},
		"of a session with nil": {set: labels{"a": "1"}, want: labels{"a": "1"}},
	} {
		err := CheckLabelUpdate(test.set, test.remove)
		check(t, name, err, fault.InvalidField, test.field)
		if err != nil {
			continue
		}
		before := maps.Clone(test.have)
		got, err := UpdatedLabels(test.have, test.set, test.remove)
		if test.full {
			check(t, name, err, fault.LimitExceeded, "set")
		} else if err != nil || !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, test.want)
		}
		if !maps.Equal(before, test.have) {
			t.Errorf("%s: the labels were changed in place", name)
		}
	}
}

// replaced returns many labels of which one has another value and one is missing.
func replaced() labels {
	out := many(MaxLabels)
	out["k0"] = "w"
	delete(out, "k1")
	return out
}

func TestFits(t *testing.T) {
	t.Parallel()
	s := &bridgev1.Session{
		Context: &bridgev1.SessionContext{WorkingDirectory: "/w", Repository: "r"}, Labels: labels{"a": "1", "b": ""},
	}
	for name, test := range map[string]struct {
		f    *bridgev1.SessionFilter
		want bool
	}{
		"none":                     {nil, true},
		"its directory":            {&bridgev1.SessionFilter{WorkingDirectory: "/w"}, true},
		"both":                     {&bridgev1.SessionFilter{WorkingDirectory: "/w", Repository: "r"}, true},
		"one of two":               {&bridgev1.SessionFilter{WorkingDirectory: "/w", Repository: "other"}, false},
		"an unknown one":           {&bridgev1.SessionFilter{Branch: "b"}, false},
		"a label":                  {&bridgev1.SessionFilter{Labels: labels{"a": "1"}}, true},
		"all labels":               {&bridgev1.SessionFilter{Labels: labels{"a": "1", "b": ""}}, true},
		"another value":            {&bridgev1.SessionFilter{Labels: labels{"a": "2"}}, false},
		"an empty value, missing":  {&bridgev1.SessionFilter{Labels: labels{"c": ""}}, false},
		"one label of two":         {&bridgev1.SessionFilter{Labels: labels{"a": "1", "c": "3"}}, false},
		"a label, other directory": {&bridgev1.SessionFilter{Labels: labels{"a": "1"}, WorkingDirectory: "/x"}, false},
	} {
		if got := FitsFilter(s, test.f); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	err := CheckFilter(&bridgev1.SessionFilter{Labels: labels{"a b": ""}}, "filter")
	if fault.ReasonOf(err) != fault.InvalidField {
		t.Errorf("a filter with a wrong key: %v", err)
	}
}
