package segment

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// A segment is a sequence of frames: the length of the payload (4 bytes, little-endian), the CRC-32C of length and
// payload (4 bytes), the payload. A payload is a kind (1 byte), a number (varint) and a body.

const frameHead = 8

// maxPayload exceeds every payload: a frame from the CLI has at most 64 MiB.
const maxPayload = 1 << 30

// kind is the type of a frame.
type kind byte

const (
	// kindHeader begins a segment. Its number is that of the last entry before it; its body is the format, the epoch
	// and the current mark.
	kindHeader kind = 1
	// kindEntry is an entry with its number.
	kindEntry kind = 2
	// kindMark sets the log's mark.
	kindMark kind = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is a decoded frame. Its body aliases the bytes that were read.
type frame struct {
	kind   kind
	number uint64
	body   []byte
	size   int // with its head
}

// appendFrame appends a frame to dst. Its body is head followed by body.
func appendFrame(dst []byte, k kind, number uint64, head, body []byte) []byte {
	begin := len(dst)
	dst = slices.Grow(dst, frameHead+1+binary.MaxVarintLen64+len(head)+len(body))
	dst = append(dst[:begin+frameHead], byte(k)) // the frame's head is written last
	dst = binary.AppendUvarint(dst, number)
	dst = append(append(dst, head...), body...)
	binary.LittleEndian.PutUint32(dst[begin:], uint32(len(dst)-begin-frameHead))
	binary.LittleEndian.PutUint32(dst[begin+4:], sum(dst[begin:]))
	return dst
}

// sum returns the checksum of a frame, which covers everything from its length to its end.
func sum(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:4], castagnoli), castagnoli, frame[frameHead:])
}

// parseFrame parses the frame at the start of data. If data is too short, need is the number of bytes required to
// decide. ok is false if there is no valid frame.
func parseFrame(data []byte) (f frame, need int, ok bool) {
	if len(data) < frameHead {
		return f, frameHead, false
	}
	length := binary.LittleEndian.Uint32(data)
	if length < 2 || length > maxPayload {
		return f, 0, false
	}
	f.size = frameHead + int(length)
	if len(data) < f.size {
		return f, f.size, false
	}
	data = data[:f.size]
	if binary.LittleEndian.Uint32(data[4:]) != sum(data) {
		return f, 0, false
	}
	number, n := binary.Uvarint(data[frameHead+1:])
	if n <= 0 {
		return f, 0, false
	}
	f.kind, f.number, f.body = kind(data[frameHead]), number, data[frameHead+1+n:]
	return f, 0, f.kind >= kindHeader && f.kind <= kindMark
}
