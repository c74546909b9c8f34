package translate

import (
	"bytes"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// union writes the value of the case that is set.
func (d *decoder) union(t *Table, i, end int, top bool) *Error {
	var set record
	var chosen *field
	n := 0
	for at := i; at < end; {
		r, err := d.read(at, end)
		if err != nil {
			return err
		}
		at = r.end
		f := t.field(r.number())
		switch {
		case f != nil && f.oneof && f.matches(r):
			set, chosen = r, f
			n++
		case r.tag == unrecognizedTag && t.hasUnrecognized:
			set, chosen = r, nil
			n++
		}
	}
	switch {
	case n == 0:
		return fail(KindUnset, i)
	case n > 1:
		return d.startOver()
	case chosen == nil:
		return d.unrecognized(set, top)
	}
	var err *Error
	if chosen.kind == kindMessage {
		err = d.message(chosen.message, set.value, set.end, top)
	} else {
		err = d.one(chosen, set)
	}
	if err != nil {
		err.under(chosen.name)
	}
	return err
}

// unrecognized writes the value of a message that none of its fields holds.
func (d *decoder) unrecognized(r record, top bool) *Error {
	err := d.text(r)
	if err == nil && top && len(d.opts.ForbidExtra) > 0 {
		err = d.opts.forbiddenWithin(bytes.TrimSpace(d.src[r.value:r.end]), r.value)
	}
	if err != nil {
		err.under("unrecognized")
	}
	return err
}

// bare writes a list, map, value or null message.
func (d *decoder) bare(t *Table, i, end int, top bool) *Error {
	var own, other record // the first record of the field, unrecognized
	last, apart := 0, false
	for at := i; at < end; {
		r, err := d.read(at, end)
		if err != nil {
			return err
		}
		start := at
		at = r.end
		switch {
		case r.tag == unrecognizedTag && t.hasUnrecognized:
			other = r
		case t.sole != nil && t.sole.matches(r):
			if own.end == 0 {
				own = r
			} else if start != last || t.sole.card == single {
				apart = true
			}
			last = r.end
		}
	}
	switch {
	case other.end > 0:
		return d.unrecognized(other, top)
	case apart:
		return d.startOver()
	case own.end == 0 || t.sole.unset(own):
		d.dst = append(d.dst, t.emptyText()...)
		return nil
	case t.sole.card == single:
		return underField(d.one(t.sole, own), t.sole)
	}
	_, err := d.collection(t.sole, own, end)
	return underField(err, t.sole)
}

func underField(err *Error, f *field) *Error {
	if err != nil {
		err.under(f.name)
	}
	return err
}

// emptyText is what a bare message stands for when its field is unset.
func (t *Table) emptyText() string {
	switch {
	case t.sole == nil:
		return "null"
	case t.shape == jsonv1.Shape_SHAPE_VALUE && t.sole.card == single:
		if t.sole.zero == zeroImplied && t.sole.zeroText != "" {
			return t.sole.zeroText
		}
		return "null"
	case t.sole.card == dictionary:
		return "{}"
	}
	return "[]"
}
