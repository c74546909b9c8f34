package h2

import "encoding/binary"

// messageOverhead is what a message that waits costs beside its bytes.
const messageOverhead = 16

// streamOverhead is what a stream costs beside its headers and messages: a goroutine, its stack,
// what gRPC keeps of it.
const streamOverhead = 16 << 10

// Stream is one stream of a connection, from its headers to its end. Its methods are safe for
// concurrent use; those of a nil Stream do nothing.
type Stream struct {
	conn *Conn
	id   uint32

	// The connection's mu guards the rest.

	// opened is what its headers cost.
	opened int
	// answered says that response headers were sent.
	answered bool
	// head is that of the message that comes, left how much of it is to come, partial what it
	// costs so far, tail its last bytes.
	head     [5]byte
	headHave int
	left     int
	partial  int
	tail     [4]byte
	// whole are the costs of the messages that the handler has not taken yet, live is what
	// the messages that it has taken cost.
	whole []int
	live  int
	// refused is why the stream was refused.
	refused error
	// padding is that of the frame that comes; -1 before it is known.
	padding int
}

// Open counts the stream, with headers of so many bytes. An error refuses it.
func (s *Stream) Open(headers int) error {
	if s == nil {
		return nil
	}
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[s.id] != s || s.opened > 0 {
		return nil
	}
	s.opened = headers + streamOverhead
	err := c.config.Budget.Take(s.opened, c.sum)
	c.sum += s.opened
	if err != nil {
		s.refused = err
		c.forget(s)
	}
	return err
}

// add takes bytes of the stream's messages and returns by how much its cost grows. The caller
// holds mu.
func (s *Stream) add(p []byte, limit int) (cost int) {
	for len(p) > 0 {
		if s.headHave < len(s.head) {
			n := copy(s.head[s.headHave:], p)
			s.headHave += n
			p = p[n:]
			s.partial += n
			cost += n
			if s.headHave < len(s.head) {
				return cost
			}
			s.left = int(binary.BigEndian.Uint32(s.head[1:]))
		}
		n := min(s.left, len(p))
		s.left -= n
		s.partial += n
		cost += n
		s.remember(p[:n])
		p = p[n:]
		if s.left == 0 {
			more := s.unpacked(limit) + messageOverhead
			s.whole = append(s.whole, s.partial+more)
			cost += more
			s.headHave, s.partial = 0, 0
		}
	}
	return cost
}

// remember keeps the last bytes of the message.
func (s *Stream) remember(p []byte) {
	if len(p) >= len(s.tail) {
		copy(s.tail[:], p[len(p)-len(s.tail):])
		return
	}
	copy(s.tail[:], s.tail[len(p):])
	copy(s.tail[len(s.tail)-len(p):], p)
}

// unpacked returns what a compressed message takes beside its own bytes when it is unpacked,
// by the length at its end: codec refuses one that is longer than it says. limit is the
// largest message.
func (s *Stream) unpacked(limit int) int {
	if s.head[0]&1 == 0 {
		return 0
	}
	return min(int(binary.LittleEndian.Uint32(s.tail[:])), limit)
}

// waiting is what the stream costs without the messages that its handler has. The caller holds mu.
func (s *Stream) waiting() int {
	sum := s.opened + s.partial
	for _, n := range s.whole {
		sum += n
	}
	return sum
}

// Taken notes that the handler has taken the first message that waits. The message before it
// is given back, unless keep says that the handler still has that too. Done has to follow. It
// fails where the stream was refused: gRPC may have had the whole message before it heard so.
func (s *Stream) Taken(keep bool) error {
	if s == nil {
		return nil
	}
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if !keep {
		s.conn.adjust(-s.live)
		s.live = 0
	}
	if len(s.whole) > 0 {
		s.live += s.whole[0]
		s.whole = s.whole[1:]
	}
	return s.refused
}

// Done notes that the handler has returned: it has no message any more.
func (s *Stream) Done() {
	if s == nil {
		return
	}
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.conn.adjust(-s.live)
	s.live = 0
}
