package shim

import (
	"slices"
	"sync"
	"time"
)

// maxPast bounds the sessions that ended a while ago.
const maxPast = 16

// sessions holds the participants of a connection. Its lock guards all fields below it. Each participant has a
// goroutine; leave ends all of them.
type sessions struct {
	left chan struct{} // closed, once, when the connection has left all sessions
	once sync.Once
	// leaving are the streams of participants, which outlive the connection a little.
	leaving sync.WaitGroup

	mu   sync.Mutex
	open map[string]*participant
	// past are sessions that ended while the connection was in them, the last of them.
	past []string
	over bool
}

func newSessions() *sessions {
	return &sessions{open: map[string]*participant{}, left: make(chan struct{})}
}

// participant returns the connection's participant in a session, nil if it has none.
func (s *sessions) participant(id string) *participant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[id]
}

// add starts a participant, in place of one before. ok is false when the connection has left all sessions.
func (s *sessions) add(p *participant) (before *participant, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, false
	}
	if before = s.open[p.id]; before != nil {
		p.inherit(before.config)
	}
	s.open[p.id] = p
	s.leaving.Go(p.run)
	return before, true
}

// drop takes a participant out. The participant before takes its place again, unless it is nil or has ended.
func (s *sessions) drop(p, before *participant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[p.id] != p {
		return
	}
	delete(s.open, p.id)
	if before != nil && !before.gone() {
		s.open[p.id] = before
	}
}

// in reports whether the connection is in a session, or about to leave it.
func (s *sessions) in(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over || s.open[id] != nil
}

// active reports whether the connection is in any session.
func (s *sessions) active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open) > 0
}

// ended notes that a participant's session ended while the connection was in it.
func (s *sessions) ended(p *participant) {
	if p.detaching.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.past = append(s.past, p.id); len(s.past) > maxPast {
		s.past = slices.Delete(s.past, 0, 1)
	}
}

// hears reports whether the CLI tells the connection of host events of a session: the connection is in it, or was when
// it ended, and has not detached from it.
func (s *sessions) hears(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.open[id]; p != nil {
		return !p.detaching.Load()
	}
	return slices.Contains(s.past, id)
}

// leave ends all participations, and waits a little for the bridge to know.
func (s *sessions) leave() {
	s.mu.Lock()
	s.over = true
	all := make([]*participant, 0, len(s.open))
	for _, p := range s.open {
		all = append(all, p)
	}
	clear(s.open)
	s.mu.Unlock()
	for _, p := range all {
		p.leave(false)
	}
	for _, p := range all {
		p.awaitEnd(leaveTimeout)
	}
	s.leaving.Wait()
	s.once.Do(func() { close(s.left) })
}

// awaitLeft waits for the connection to have left all sessions.
func (s *sessions) awaitLeft(limit time.Duration) {
	select {
	case <-s.left:
	case <-time.After(limit):
	}
}
