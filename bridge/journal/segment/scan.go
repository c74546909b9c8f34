package segment

import (
	"io"
)

// scanBuffer is the size of a read from a segment that has as much.
const scanBuffer = 256 << 10

// scanner reads the frames of a file. It stops at invalid bytes; resync moves it to the next valid frame.
type scanner struct {
	file   io.ReaderAt
	offset int64 // of buffer[0]
	end    int64 // of what may be read
	buffer []byte
	at     int
	err    error
}

func newScanner(file io.ReaderAt, from, end int64) *scanner {
	return &scanner{file: file, offset: from, end: end}
}

// position returns the offset of the next frame.
func (s *scanner) position() int64 { return s.offset + int64(s.at) }

// next returns the next frame, which is valid until the next call. It returns false at the end, at invalid bytes, and
// after a read error (err).
func (s *scanner) next() (frame, bool) {
	for {
		f, need, ok := parseFrame(s.buffer[s.at:])
		if ok {
			s.at += f.size
			return f, true
		}
		if need == 0 || s.position()+int64(need) > s.end || !s.fill(need) {
			return frame{}, false
		}
	}
}

// resync moves the position to the next valid frame for which fits returns true, and reports whether there is one. It
// tries every byte. A length within the file and a matching checksum identify a frame, because JSON has no bytes that
// could be a frame's head.
func (s *scanner) resync(fits func(frame) bool) bool {
	for s.err == nil && s.position()+frameHead < s.end {
		if s.at++; s.at >= len(s.buffer) && !s.fill(frameHead) {
			return false
		}
		for {
			f, need, ok := parseFrame(s.buffer[s.at:])
			if ok && fits(f) {
				return true
			}
			if ok || need == 0 || s.position()+int64(need) > s.end {
				break // not here
			}
			if !s.fill(need) {
				return false
			}
		}
	}
	return false
}

// fill makes at least need bytes available at the position.
func (s *scanner) fill(need int) bool {
	rest := copy(s.buffer, s.buffer[s.at:])
	s.offset += int64(s.at)
	s.at = 0
	size := int(min(int64(max(need, scanBuffer)), s.end-s.offset))
	if cap(s.buffer) < size {
		s.buffer = append(make([]byte, 0, size), s.buffer[:rest]...)
	}
	n, err := s.file.ReadAt(s.buffer[rest:size], s.offset+int64(rest))
	s.buffer = s.buffer[:rest+n]
	if err != nil && err != io.EOF {
		s.err = err
	}
	return s.err == nil && len(s.buffer) >= need
}
