package session

import "maps"

// UpdateLabels replaces the session's labels by what change makes of them. change runs while the session is locked, and
// must not change the labels in place. Its error is returned.
func (s *Session) UpdateLabels(change func(labels map[string]string) (map[string]string, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	labels, err := change(s.settings.State.Labels)
	if err != nil || maps.Equal(labels, s.settings.State.Labels) {
		return err
	}
	s.settings.State.Labels = labels
	s.markDirty()
	s.host.LabelsChanged()
	return nil
}

// Labels returns the session's labels. The caller must not change them.
func (s *Session) Labels() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings.State.Labels
}
