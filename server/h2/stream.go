package h2

import (
	"encoding/binary"

	"github.com/copilot-grpc/copilot-grpc/server/account"
)

// messageOverhead is the cost of a waiting message in addition to its bytes.
const messageOverhead = 16

// streamOverhead is the cost of a stream in addition to its headers and messages: a goroutine, its stack, and gRPC's
// state.
const streamOverhead = 16 << 10

// Stream is one stream of a connection, from its headers to its end. It is safe for concurrent use. The methods
// of a nil Stream do nothing.
type Stream struct {
	conn *Conn
	id   uint32

	// The connection's mu guards the following fields.

	// budget counts the stream's cost.
	budget account.Budget
	// opened is the cost of its headers.
	opened int
	// answered reports that response headers were sent.
	answered bool
	// head is the header of the incoming message, left the missing length, partial the cost so far, tail the last
	// bytes.
	head     [5]byte
	headHave int
	left     int
	partial  int
	tail     [4]byte
	// whole are the costs of waiting messages; live is the cost of the messages that the handler uses.
	whole []int
	live  int
	// refused is the error with which the stream was refused.
	refused error
	// padding is the padding of the incoming frame; -1 if unknown.
	padding int
}

// Open counts the stream with headers of the given size by a budget, as all that comes after them. An error refuses it.
func (s *Stream) Open(headers int, by account.Budget) error {
	if s == nil {
		return nil
	}
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[s.id] != s || s.opened > 0 {
		return nil
	}
	s.adjust(-s.waiting())
	s.budget = by
	s.opened = headers + streamOverhead
	err := by.Take(s.waiting())
	if err != nil {
		s.refused = err
		c.forget(s)
	}
	return err
}

// Budget returns what counts the stream's cost; nil for a nil Stream.
func (s *Stream) Budget() account.Budget {
	if s == nil {
		return nil
	}
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.budget
}

// add counts bytes of the stream's messages and returns the increase of its cost. The caller holds mu.
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

// remember stores the last bytes of the message.
func (s *Stream) remember(p []byte) {
	if len(p) >= len(s.tail) {
		copy(s.tail[:], p[len(p)-len(s.tail):])
		return
	}
	copy(s.tail[:], s.tail[len(p):])
	copy(s.tail[len(s.tail)-len(p):], p)
}

// unpacked returns the additional memory of a compressed message after decompression, from the length at its end:
// codec refuses a longer one. limit is the largest message.
func (s *Stream) unpacked(limit int) int {
	if s.head[0]&1 == 0 {
		return 0
	}
	return min(int(binary.LittleEndian.Uint32(s.tail[:])), limit)
}

// waiting returns the stream's cost without the messages that its handler uses. The caller holds mu.
func (s *Stream) waiting() int {
	sum := s.opened + s.partial
	for _, n := range s.whole {
		sum += n
	}
	return sum
}

// Taken records that the handler took the first waiting message. The previous message is released unless keep is set.
// Done must follow. Taken fails if the stream was refused, because gRPC may have received the whole message earlier.
func (s *Stream) Taken(keep bool) error {
	if s == nil {
		return nil
	}
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if !keep {
		s.adjust(-s.live)
		s.live = 0
	}
	if len(s.whole) > 0 {
		s.live += s.whole[0]
		s.whole = s.whole[1:]
	}
	return s.refused
}

// Done records that the handler has returned and uses no messages.
func (s *Stream) Done() {
	if s == nil {
		return
	}
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.adjust(-s.live)
	s.live = 0
}
