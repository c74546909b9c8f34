package session

// Host returns the host of the session's configuration.
func (s *Session) Host() Host { return s.host }
