package bounds

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// json counts the value at the current place: a message of a plan, or any value if p is nil.
func (c *counter) json(p *plan, depth int) error {
	if depth == 0 {
		return errMalformed
	}
	memory := valueOverhead
	if p != nil {
		memory = p.memory
	}
	if err := c.add(1, memory); err != nil {
		return err
	}
	free := p == nil || p.free
	switch b := c.next(); {
	case b == '{' && free:
		return c.freely("fields", c.members, depth)
	case b == '{':
		return c.object(p, depth)
	case b == '[' && free:
		return c.freely("values", c.array, depth)
	}
	return c.scalar()
}

// freely counts an object or an array without a type. name is that of the field of a Struct or a ListValue.
func (c *counter) freely(name string, each func(func([]byte) error) error, depth int) error {
	n := 0
	return each(func([]byte) error {
		if n++; n > MaxFieldItems {
			return &exceeded{name, MaxFieldItems}
		}
		return c.json(nil, depth-1)
	})
}

// object counts the fields of a message.
func (c *counter) object(p *plan, depth int) error {
	base := c.begin(p.items)
	defer c.end(base)
	return c.members(func(key []byte) error {
		f := p.names[string(key)]
		switch {
		case f == nil:
			return errMalformed // unknown fields are errors
		case f.many:
			return c.jsonField(base, f, depth)
		case f.message != nil:
			return within(c.json(planOf(f.message), depth-1), f.name)
		}
		return c.scalar()
	})
}

// jsonField counts a repeated field, or a map.
func (c *counter) jsonField(base int, f *field, depth int) error {
	each := c.array
	message := f.message
	if f.desc.IsMap() {
		each, message = c.members, f.desc.MapValue().Message()
	}
	if b := c.next(); b != '[' && b != '{' {
		return c.scalar() // null
	}
	return each(func([]byte) error {
		if c.counts[base+f.item]++; c.counts[base+f.item] > f.max {
			return &exceeded{f.name, f.max}
		}
		if message == nil || f.desc.IsMap() {
			if err := c.add(1, f.memory); err != nil {
				return err
			}
		}
		if message == nil {
			return c.scalar()
		}
		err := c.json(planOf(message), depth-1)
		if err == nil {
			return nil
		}
		return within(err, nthName(f, c.counts[base+f.item]-1))
	})
}

// nthName names an element of a field.
func nthName(f *field, n int) string { return fmt.Sprintf("%s[%d]", f.name, n) }

// array calls each at the begin of each element of the array at the current place.
func (c *counter) array(each func([]byte) error) error {
	return c.sequence('[', ']', func() error { return each(nil) })
}

// members calls each at the begin of the value of each member of the object at the current place, with the member's
// name.
func (c *counter) members(each func(key []byte) error) error {
	return c.sequence('{', '}', func() error {
		key, err := c.name()
		if err != nil {
			return err
		}
		if c.next() != ':' {
			return errMalformed
		}
		c.at++
		return each(key)
	})
}

// sequence calls one at the begin of everything between open and end that commas separate.
func (c *counter) sequence(open, end byte, one func() error) error {
	if c.next() != open {
		return errMalformed
	}
	c.at++
	if c.next() == end {
		c.at++
		return nil
	}
	for {
		if err := one(); err != nil {
			return err
		}
		switch c.next() {
		case ',':
			c.at++
		case end:
			c.at++
			return nil
		default:
			return errMalformed
		}
	}
}

// next skips spaces and returns the byte after them; 0 at the end.
func (c *counter) next() byte {
	for ; c.at < len(c.text); c.at++ {
		switch b := c.text[c.at]; b {
		case ' ', '\t', '\n', '\r':
		default:
			return b
		}
	}
	return 0
}

// scalar skips a string, a number or a literal.
func (c *counter) scalar() error {
	if c.next() == '"' {
		_, err := c.quoted()
		return err
	}
	n := bytes.IndexAny(c.text[c.at:], ",:]}[{\" \t\r\n")
	if n < 0 {
		n = len(c.text) - c.at
	}
	if c.at += n; n == 0 {
		return errMalformed
	}
	return nil
}

// name reads a string.
func (c *counter) name() ([]byte, error) {
	if c.next() != '"' {
		return nil, errMalformed
	}
	text, err := c.quoted()
	if err != nil || bytes.IndexByte(text, '\\') < 0 {
		return bytes.Trim(text, `"`), err
	}
	var name string
	if json.Unmarshal(text, &name) != nil {
		return nil, errMalformed
	}
	return []byte(name), nil
}

// quoted skips the string at the current place and returns it with its quotes.
func (c *counter) quoted() ([]byte, error) {
	for i := c.at + 1; i < len(c.text); i++ {
		switch c.text[i] {
		case '\\':
			i++
		case '"':
			text := c.text[c.at : i+1]
			c.at = i + 1
			return text, nil
		}
	}
	return nil, errMalformed
}
