package h2

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// headLen is the length of a frame header.
const headLen = 9

// scanner follows the frames of one direction of a connection, in pieces of any size.
type scanner struct {
	// preface is the missing part of the client's preface.
	preface int
	raw     [headLen]byte
	have    int
	// at is the current frame, left the missing length of its payload.
	at   http2.FrameHeader
	left int
	// frames counts the started frames.
	frames int
	// block reports that a header block continues in the next frame: no other frame may come between.
	block bool
}

// boundary reports whether a frame may be inserted here.
func (s *scanner) boundary() bool { return s.have == 0 && s.left == 0 && s.frames > 0 && !s.block }

// next reads at most up to the end of a frame from p. It returns the number of bytes read, the part of them that is
// payload of the current frame, and whether the header and the frame were completed.
func (s *scanner) next(p []byte) (n int, payload []byte, begun, ended bool) {
	if s.preface > 0 {
		n = min(s.preface, len(p))
		s.preface -= n
		return n, nil, false, false
	}
	if s.left == 0 {
		n = copy(s.raw[s.have:], p)
		if s.have += n; s.have < headLen {
			return n, nil, false, false
		}
		s.have, begun = 0, true
		s.frames++
		s.at = http2.FrameHeader{
			Length: uint32(s.raw[0])<<16 | uint32(s.raw[1])<<8 | uint32(s.raw[2]),
			Type:   http2.FrameType(s.raw[3]), Flags: http2.Flags(s.raw[4]),
			StreamID: binary.BigEndian.Uint32(s.raw[5:]) & (1<<31 - 1),
		}
		s.left = int(s.at.Length)
		switch s.at.Type {
		case http2.FrameHeaders, http2.FramePushPromise, http2.FrameContinuation:
			s.block = !s.at.Flags.Has(http2.FlagHeadersEndHeaders)
		}
	}
	m := min(s.left, len(p)-n)
	payload = p[n : n+m]
	s.left -= m
	return n + m, payload, begun, s.left == 0
}
