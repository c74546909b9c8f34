package session

import (
	"errors"
	"maps"
	"testing"
)

// labelled counts what a session tells of its labels.
type labelled struct {
	fixture
	told, saved int
}

// LabelsChanged and MarkDirty implement Host.
func (h *labelled) LabelsChanged() { h.told++ }
func (h *labelled) MarkDirty()     { h.saved++ }

// TestUpdateLabels: changed labels are saved and told once; a change to what they are, or one that fails, is none.
func TestUpdateLabels(t *testing.T) {
	t.Parallel()
	h := &labelled{}
	s := New(Config{ID: "s1", Host: h})
	failed := errors.New("failed")
	for _, tc := range []struct {
		to, want map[string]string
		fails    error
		told     int
	}{
		{to: map[string]string{"a": "1"}, want: map[string]string{"a": "1"}, told: 1},
		{to: map[string]string{"a": "1"}, want: map[string]string{"a": "1"}, told: 1},
		{to: map[string]string{"b": "2"}, fails: failed, want: map[string]string{"a": "1"}, told: 1},
		{to: nil, want: nil, told: 2},
	} {
		err := s.UpdateLabels(func(map[string]string) (map[string]string, error) { return tc.to, tc.fails })
		if !errors.Is(err, tc.fails) || !maps.Equal(s.Labels(), tc.want) || h.told != tc.told || h.saved != tc.told {
			t.Errorf("to %v: %v, labels %v, told %d times, saved %d times", tc.to, err, s.Labels(), h.told, h.saved)
		}
	}
}
