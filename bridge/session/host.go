package session

// Host returns what the session was made with.
func (s *Session) Host() Host { return s.host }
