package fsck

import (
	"cmp"
	"encoding/binary"
	"path"
	"regexp"
	"slices"
	"strconv"
)

var segmentName = regexp.MustCompile(`^([0-9a-f]{16})-([0-9a-f]{16})\.seg$`)

// reader is told of the frames of a log. What it returns is wrong with the frame; empty if nothing is.
type reader interface {
	begin(epoch, base uint64)
	entry(l *log, s *segment, f frame) string
	mark(l *log, body []byte) string
}

// log is a log that is read.
type log struct {
	c      *checker
	reader reader
	base   uint64 // of the first segment
	last   uint64 // the number of the last entry
	// unsure reports damage since the last mark, so that a mark may be missing.
	unsure bool
	holes  []Range
	file   string // that is read
}

// file is a segment's file.
type file struct {
	name        string
	epoch, base uint64
}

// log reads the log in a directory, and returns it; nil if there is none. known are other files of the directory.
func (c *checker) log(dir string, r reader, known ...string) *log {
	var files []file
	for _, e := range c.list(dir) {
		name := path.Join(dir, e.Name())
		if m := segmentName.FindStringSubmatch(e.Name()); m != nil {
			epoch, _ := strconv.ParseUint(m[1], 16, 64) // 16 digits always fit
			base, _ := strconv.ParseUint(m[2], 16, 64)
			files = append(files, file{name, epoch, base})
		} else if !slices.Contains(known, e.Name()) {
			c.other(name)
		}
	}
	if len(files) == 0 {
		return nil
	}
	slices.SortFunc(files, func(a, b file) int {
		return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.base, b.base))
	})
	epoch := files[len(files)-1].epoch
	for files[0].epoch != epoch {
		c.Notes.add(files[0].name, "was replaced by epoch %d", epoch)
		files = files[1:]
	}
	l := &log{c: c, reader: r, base: files[0].base, last: files[0].base}
	r.begin(epoch, l.base)
	for i, f := range files {
		limit := ^uint64(0)
		if i+1 < len(files) {
			limit = files[i+1].base
		}
		l.segment(f, limit, i+1 == len(files))
	}
	return l
}

// damage reports damage of the file that is read.
func (l *log) damage(format string, values ...any) {
	l.c.Damage.add(l.file, format, values...)
}

// skip records that entries up to a number may be missing.
func (l *log) skip(through uint64) {
	if through <= l.last {
		return
	}
	if len(l.holes) < maxFindings {
		l.holes = append(l.holes, Range{l.last + 1, through})
	}
	l.last = through
}

// segment reads a file. No entry in it has a number above limit.
func (l *log) segment(f file, limit uint64, last bool) {
	if l.file = f.name; f.base > l.last {
		l.damage("begins after entry %d, but the last one before it is %d", f.base, l.last)
		l.unsure = true
		l.skip(f.base)
	}
	opened, size, err := l.c.open(f.name)
	if err != nil {
		l.c.unread(f.name, err)
		return
	}
	defer func() { _ = opened.Close() }()
	s := newSegment(l.c.ctx, opened, size)
	at, ok := l.header(s, f, last)
	if ok {
		l.frames(s, at, limit, last)
	}
	if s.err != nil {
		l.c.unread(f.name, s.err)
	}
}

// header reads the first frame, and returns where the next one begins. ok is false if nothing is to be read.
func (l *log) header(s *segment, name file, last bool) (at int64, ok bool) {
	const fixed = 4 + 8
	f, fault := s.frame(0)
	switch {
	case s.size == 0 && last:
		l.c.Notes.add(l.file, "is empty")
		return 0, false
	case s.size == 0:
		l.damage("is empty")
		return 0, false
	case fault != whole:
		return 0, true
	case f.kind != kindHeader || len(f.head) < fixed || string(f.head[:4]) != "cgj\x01":
		l.damage("has no header of this format")
		l.unsure = true
		return 0, true
	case binary.LittleEndian.Uint64(f.head[4:]) != name.epoch || f.number != name.base:
		l.damage("has the header of another segment")
		l.unsure = true
		return 0, false
	}
	l.unsure = false
	if mark := f.head[fixed:]; len(mark) > 0 {
		if bad := l.reader.mark(l, mark); bad != "" {
			l.damage("has a header whose mark %s", bad)
		}
	}
	return f.end, true
}

// fits returns whether a frame can follow the last one.
func (l *log) fits(limit uint64) func(kind byte, number uint64) bool {
	return func(kind byte, number uint64) bool {
		return number <= limit && (kind == kindEntry && number > l.last || kind == kindMark && number >= l.last)
	}
}

// frames reads the frames behind the header.
func (l *log) frames(s *segment, at int64, limit uint64, last bool) {
	fits := l.fits(limit)
	for at < s.size && s.err == nil {
		f, fault := s.frame(at)
		if fault == whole && fits(f.kind, f.number) {
			l.frame(s, f)
			at = f.end
			continue
		}
		next := s.search(at+1, fits)
		switch {
		case next < s.size:
			l.damage("has %d damaged bytes at %d", next-at, at)
		case fault == torn && last && !s.wrongLength(at):
			l.c.Notes.add(l.file, "ends with a frame of %d bytes that was not finished", s.size-at)
			return
		default:
			l.damage("ends with %d damaged bytes at %d", s.size-at, at)
		}
		l.unsure = true
		if at = next; at < s.size {
			f, _ := s.frame(at)
			if f.kind == kindEntry {
				l.skip(f.number - 1)
			} else {
				l.skip(f.number)
			}
		}
	}
}

// frame takes a frame that fits.
func (l *log) frame(s *segment, f frame) {
	var bad string
	if f.kind == kindMark {
		if f.number > l.last {
			l.damage("has a mark behind entry %d, but the last one before it is %d", f.number, l.last)
			l.skip(f.number)
		}
		l.unsure = false
		bad = l.reader.mark(l, f.head)
	} else {
		bad = l.reader.entry(l, s, f)
		l.last = f.number
	}
	if bad != "" {
		l.damage("has a frame at %d, number %d, that %s", f.at, f.number, bad)
	}
}

// texts cuts numbers and texts from the begin of a body. ok becomes false, and stays it, when the body is too short.
type texts struct {
	rest []byte
	ok   bool
}

func (t *texts) number() uint64 {
	n, size := binary.Uvarint(t.rest)
	if size <= 0 {
		t.rest, t.ok = nil, false
		return 0
	}
	t.rest = t.rest[size:]
	return n
}

func (t *texts) text() []byte {
	n := t.number()
	if n > uint64(len(t.rest)) {
		t.rest, t.ok = nil, false
		return nil
	}
	text := t.rest[:n]
	t.rest = t.rest[n:]
	return text
}
