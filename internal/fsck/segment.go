package fsck

import (
	"cmp"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
)

const (
	frameHead  = 8
	minPayload = 2
	maxPayload = 1 << 30
	// pieceBytes is how much of a segment is in memory. maxBodyHead is how much of a body is looked at.
	pieceBytes  = 256 << 10
	maxBodyHead = 64 << 10
	// searchFactor bounds the bytes that are summed in search of valid frames, by the segment's size: an attacker could
	// write a segment in which each byte begins a frame.
	searchFactor = 16
)

const (
	kindHeader = 1
	kindEntry  = 2
	kindMark   = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is a valid frame of a segment.
type frame struct {
	kind   byte
	number uint64
	head   []byte // the begin of the body, valid until the segment is read on
	at     int64  // where the body begins
	end    int64  // where the frame ends
}

// fault is why there is no valid frame.
type fault int

const (
	whole fault = iota
	torn        // the file ends within the frame
	wrong
)

// segment reads a file in pieces.
type segment struct {
	ctx    context.Context //nolint:containedctx // that of the call of Check
	file   io.ReaderAt
	size   int64
	err    error // of the disk
	piece  []byte
	begin  int64 // of piece
	budget int64 // of bytes that search may sum
}

func newSegment(ctx context.Context, file io.ReaderAt, size int64) *segment {
	return &segment{
		ctx: ctx, file: file, size: size, piece: make([]byte, 0, min(size, pieceBytes)),
		budget: searchFactor*min(size, 1<<40) + pieceBytes,
	}
}

// peek returns up to n bytes at an offset, n being at most pieceBytes.
func (s *segment) peek(at int64, n int) []byte {
	n = int(max(0, min(int64(n), s.size-at)))
	if at < s.begin || at+int64(n) > s.begin+int64(len(s.piece)) {
		read, err := s.file.ReadAt(s.piece[:min(int64(cap(s.piece)), s.size-at)], at)
		if err == nil || err == io.EOF {
			err = s.ctx.Err()
		}
		s.err = cmp.Or(s.err, err)
		s.piece, s.begin = s.piece[:read], at
	}
	from := min(at-s.begin, int64(len(s.piece)))
	return s.piece[from:min(from+int64(n), int64(len(s.piece)))]
}

// sum continues a CRC-32C with the bytes between two offsets.
func (s *segment) sum(sum uint32, from, to int64) uint32 {
	for from < to && s.err == nil {
		piece := s.peek(from, int(min(to-from, pieceBytes)))
		if len(piece) == 0 {
			s.err = io.ErrUnexpectedEOF // the file has become shorter
		}
		sum, from = crc32.Update(sum, castagnoli, piece), from+int64(len(piece))
	}
	return sum
}

// frame reads the frame at an offset.
func (s *segment) frame(at int64) (frame, fault) {
	head := s.peek(at, frameHead)
	if len(head) < frameHead {
		return frame{}, torn
	}
	length := binary.LittleEndian.Uint32(head)
	if length < minPayload || length > maxPayload {
		return frame{}, wrong
	}
	return s.frameOf(at, length)
}

// frameOf reads the frame at an offset as if it had a length.
func (s *segment) frameOf(at int64, length uint32) (f frame, _ fault) {
	payload := at + frameHead
	if f.end = payload + int64(length); f.end > s.size {
		return f, torn
	}
	want := binary.LittleEndian.Uint32(s.peek(at, frameHead)[4:])
	sum := crc32.Checksum(binary.LittleEndian.AppendUint32(nil, length), castagnoli)
	if s.sum(sum, payload, f.end) != want || s.err != nil {
		return f, wrong
	}
	head := s.peek(payload, int(min(int64(length), maxBodyHead)))
	number, n := binary.Uvarint(head[1:])
	if n <= 0 || head[0] < kindHeader || head[0] > kindMark {
		return f, wrong
	}
	f.kind, f.number, f.head, f.at = head[0], number, head[1+n:], payload+1+int64(n)
	return f, whole
}

// search returns the offset of the next valid frame from an offset for which fits returns true; the size if there is
// none.
func (s *segment) search(at int64, fits func(kind byte, number uint64) bool) int64 {
	for ; at+frameHead+minPayload <= s.size && s.err == nil; at++ {
		head := s.peek(at, frameHead+1+binary.MaxVarintLen64)
		length := int64(binary.LittleEndian.Uint32(head))
		if length < minPayload || length > maxPayload || at+frameHead+length > s.size {
			continue
		}
		// Nearly all other places end here: no JSON has the bytes of a kind.
		number, n := binary.Uvarint(head[frameHead+1:])
		if n <= 0 || !fits(head[frameHead], number) {
			continue
		}
		if s.budget -= length; s.budget < 0 {
			break
		}
		begin := s.begin
		if _, fault := s.frameOf(at, uint32(length)); fault == whole {
			return at
		}
		if s.begin != begin { // it is read again
			s.budget -= pieceBytes
		}
	}
	return s.size
}

// wrongLength reports whether the bytes at an offset are a frame but for one bit of its length: the file then does not end
// within it.
func (s *segment) wrongLength(at int64) bool {
	head := s.peek(at, frameHead)
	if len(head) < frameHead {
		return false
	}
	length := binary.LittleEndian.Uint32(head)
	for bit := range 32 {
		if other := length ^ 1<<bit; other >= minPayload && other <= maxPayload {
			if _, fault := s.frameOf(at, other); fault == whole {
				return true
			}
		}
	}
	return false
}
