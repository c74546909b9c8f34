package translate

import (
	"bytes"
	"math/bits"
)

// extraInfo is what a json_extra says.
type extraInfo struct {
	text   []byte // the object
	named  mask   // declared members in it
	absent mask   // declared members that "$absent" names
	whole  []byte // what "$value" holds; nil when it is not there
	others int    // members besides "$absent"
	repeat bool   // a name may occur twice
}

// finishObject writes what is left after the typed fields: json_extra and the
// required members that are unset.
func (d *decoder) finishObject(t *Table, s *objectScan) *Error {
	var x extraInfo
	if s.extra.end > s.extra.value {
		var err *Error
		if x, err = d.examine(t, s); err != nil {
			err.under("json_extra")
			return err
		}
		if x.whole != nil {
			d.dst = append(d.dst[:s.mark], x.whole...)
			return nil
		}
		if x.overrides(t, s) != (mask{}) {
			return d.startOver()
		}
		if x.others > 0 {
			d.extras(&x)
		}
	}
	if s.payload != nil && len(s.payload.tags) > 0 && !s.seen.has(t.typeMember) && !x.named.has(t.typeMember) {
		s.seen.add(t.typeMember)
		d.key(t.members[t.typeMember].key)
		d.dst, _ = appendString(d.dst, []byte(s.payload.tags[0]))
	}
	for w := range t.required {
		left := t.required[w] &^ s.seen[w] &^ x.named[w] &^ x.absent[w]
		for ; left != 0; left &= left - 1 {
			f := t.members[w<<6+bits.TrailingZeros64(left)].field
			if f != nil && f.zeroText != "" {
				d.key(f.key)
				d.dst = append(d.dst, f.zeroText...)
			}
		}
	}
	d.dst = append(d.dst, '}')
	return nil
}

// overrides returns the members that were written although json_extra speaks
// for them.
func (x *extraInfo) overrides(t *Table, s *objectScan) mask {
	var hide mask
	for i := range t.members {
		written := s.seen.has(i)
		absent := false
		if t.members[i].role == roleConst {
			written, absent = true, x.absent.has(i)
		}
		if written && (absent || x.named.has(i)) && !s.hidden.has(i) {
			hide.add(i)
		}
	}
	return hide
}

// extras copies the members of a json_extra, except "$absent".
func (d *decoder) extras(x *extraInfo) {
	text := x.text
	if x.repeat {
		// It was found well-formed before.
		text, _ = dropRepeated(text, d.limits.MaxDepth+1)
	}
	for m := range Members(text) {
		if string(m.Name) != absentName {
			d.comma()
			d.dst = append(append(d.dst, m.Key...), ':')
			d.dst = append(d.dst, m.Value...)
		}
	}
}

// examine checks a json_extra and sorts out its members.
func (d *decoder) examine(t *Table, s *objectScan) (extraInfo, *Error) {
	x := extraInfo{text: d.src[s.extra.value:s.extra.end]}
	if k, at := d.checkText(x.text); k != 0 {
		return x, fail(k, s.extra.value+at)
	}
	x.text = bytes.TrimSpace(x.text)
	if x.text[0] != '{' {
		return x, fail(KindText, s.extra.value)
	}
	x.repeat = hasRepeated(x.text)
	for m := range Members(x.text) {
		i := int(t.index.find(m.Name))
		if err := d.checkExtra(t, s, m.Name, m.Value, i); err != nil {
			return x, err
		}
		switch {
		case string(m.Name) == absentName:
			if !x.addAbsent(t, m.Value) {
				return x, fail(KindText, s.extra.value)
			}
			continue
		case string(m.Name) == valueName:
			x.whole = m.Value
		case i >= 0:
			x.named.add(i)
		}
		x.others++
		if d.opts.MaxExtraMembers > 0 && x.others > d.opts.MaxExtraMembers {
			return x, fail(KindSize, s.extra.value)
		}
	}
	return x, nil
}

// checkExtra applies the caller's options to one member of a json_extra; i is
// its index among the declared ones.
func (d *decoder) checkExtra(t *Table, s *objectScan, name, value []byte, i int) *Error {
	reserved := string(name) == absentName || string(name) == valueName
	if s.top && len(d.opts.ForbidExtra) > 0 {
		if err := d.opts.forbidden(name, s.extra.value); err != nil {
			return err
		}
		if reserved {
			if err := d.opts.forbiddenWithin(value, s.extra.value); err != nil {
				return err
			}
		}
	}
	if !d.opts.RejectDeclaredExtra || i < 0 && !reserved {
		return nil
	}
	if i >= 0 && !s.seen.has(i) {
		if f := t.members[i].field; f != nil && f.isEmpty(value) {
			return nil
		}
	}
	err := fail(KindDeclaredExtra, s.extra.value)
	err.Detail = string(name)
	return err
}

// addAbsent reads the list of names under "$absent".
func (x *extraInfo) addAbsent(t *Table, value []byte) bool {
	if value[0] != '[' {
		return false
	}
	return eachString(value, func(name []byte) bool {
		if i := int(t.index.find(name)); i >= 0 {
			x.absent.add(i)
		}
		return true
	})
}

// checkText checks that text is one well-formed JSON value.
func (d *decoder) checkText(text []byte) (Kind, int) {
	start := space(text, 0)
	levels := d.limits.MaxDepth + 1
	if d.opts.MaxDepth > 0 {
		levels = d.depth + 1 // what json_extra holds is at the level of its message
	}
	end, k := valueEnd(text, start, levels)
	switch k {
	case 0:
	case KindSyntax:
		return KindText, end
	default:
		return k, end
	}
	if end := space(text, end); end != len(text) {
		return KindText, end
	}
	return 0, 0
}

// eachString calls visit for every element of an array that is known to be
// well-formed. It returns false when visit does or an element is not a string.
func eachString(text []byte, visit func(s []byte) bool) bool {
	i := space(text, 1)
	for text[i] != ']' {
		if text[i] != '"' {
			return false
		}
		end, escaped, _ := stringEnd(text, i)
		s := text[i+1 : end-1]
		if escaped {
			s, _ = appendUnescaped(nil, s)
		}
		if !visit(s) {
			return false
		}
		if i = space(text, end); text[i] == ',' {
			i = space(text, i+1)
		}
	}
	return true
}
