package session

// Company returns how many participants the session has.
func (s *Session) Company() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.participants)
}
