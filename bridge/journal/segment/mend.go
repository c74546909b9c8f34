package segment

// Copy is an entry that is also stored elsewhere.
type Copy struct {
	Entry
	Prev uint64 // the number of the entry before it in the log
}

// mend writes copies of missing entries over damaged bytes of a file, from an offset to the scanner's position, where a
// valid frame is. It returns the offset from which the bytes are still damaged. The entries that were there fit; if they
// fill the place, nothing else was in it. After a crash meanwhile the bytes are damaged as before.
func (l *Log) mend(
	file File, s *segment, from int64, scan *scanner, found *Recovered, visit func(uint64, []byte) error,
) (int64, error) {
	next, _ := scan.next()
	scan.at -= next.size
	before := next.number
	if next.kind == kindMark { // it has the number of the entry before it
		before++
	}
	for _, c := range l.o.Copies(l.epoch, s.last, before) {
		at := from
		if c.Prev > s.last {
			at++ // what stays damaged tells that an entry is missing here
		}
		framed := appendFrame(nil, kindEntry, c.Number, c.Head, c.Body)
		body := framed[len(framed)-len(c.Head)-len(c.Body):]
		if c.Prev < s.last || at+int64(len(framed)) > scan.position() || visit(c.Number, body) != nil {
			break
		}
		if at > from {
			found.skip(at-from, s.last)
		}
		found.resume(c.Number - 1)
		if _, err := file.WriteAt(framed, at); err != nil {
			return from, err
		}
		s.last, from = c.Number, at+int64(len(framed))
	}
	return from, nil
}
