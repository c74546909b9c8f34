package translate

import (
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Fidelity says how much of a JSON value its wire form keeps.
type Fidelity uint8

const (
	// Tidy drops explicit nulls and empty lists and maps of optional members,
	// unless the member is declared nullable, so that null means something, and
	// takes an empty object for null where a message stands for nothing else.
	Tidy Fidelity = iota
	// Exact keeps everything.
	Exact
)

// Limits bounds what one call may do. A zero field means its default.
type Limits struct {
	// MaxDepth is how deeply a value may be nested. Default 1000.
	MaxDepth int
	// MaxInput is how many bytes the input may have. Default 64 MiB.
	MaxInput int
	// MaxOutput is how many bytes a call may append. Empty messages with many
	// required members make JSON of a hundred times their size, so that a limit
	// on the input is not enough. Default 128 MiB.
	MaxOutput int
}

const (
	defaultMaxDepth  = 1000
	defaultMaxInput  = 64 << 20
	defaultMaxOutput = 128 << 20
)

func (l Limits) withDefaults() Limits {
	if l.MaxDepth <= 0 {
		l.MaxDepth = defaultMaxDepth
	}
	if l.MaxInput <= 0 {
		l.MaxInput = defaultMaxInput
	}
	if l.MaxOutput <= 0 {
		l.MaxOutput = defaultMaxOutput
	}
	return l
}

// Set compiles and keeps the tables of message types. It is safe for
// concurrent use.
type Set struct {
	limits Limits

	mu     sync.RWMutex
	tables map[protoreflect.FullName]*Table
}

// Option configures a Set.
type Option func(*Set)

// WithLimits replaces the default limits.
func WithLimits(l Limits) Option {
	return func(s *Set) { s.limits = l }
}

// NewSet returns an empty Set.
func NewSet(options ...Option) *Set {
	s := &Set{tables: make(map[protoreflect.FullName]*Table)}
	for _, o := range options {
		o(s)
	}
	s.limits = s.limits.withDefaults()
	return s
}

// Table returns the table of a message type. The first call for a type compiles its table and the tables of all
// types that it refers to. An error means that the descriptor violates the conventions of copilot.json.v1.
func (s *Set) Table(md protoreflect.MessageDescriptor) (*Table, error) {
	s.mu.RLock()
	t := s.tables[md.FullName()]
	s.mu.RUnlock()
	if t != nil {
		return t, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := compiler{known: s.tables, fresh: make(map[protoreflect.FullName]*Table), limits: s.limits}
	t, err := c.table(md)
	if err != nil {
		return nil, err
	}
	for name, t := range c.fresh {
		s.tables[name] = t
	}
	return t, nil
}

// AppendWire appends to dst the protobuf wire form of one JSON value and
// returns the extended slice. On an error, always an *Error, it returns dst
// unchanged.
func (t *Table) AppendWire(dst, json []byte, f Fidelity) ([]byte, error) {
	e := encoders.Get().(*encoder)
	out, err := e.run(t, dst, json, f)
	e.release()
	return out, err
}

// JSONOptions says what AppendJSON lets json_extra do. The zero value allows
// everything.
type JSONOptions struct {
	// RejectDeclaredExtra refuses json_extra, at any level, that names a declared
	// member or holds "$absent" or "$value". The one exception is an explicit empty
	// value for a member whose field is unset: [], {} or "" for a list, map, object
	// or string, and null for a member declared nullable. An unset field leaves the
	// member out, so lists and maps have no other way to be empty.
	RejectDeclaredExtra bool
	// ForbidExtra names members that the json_extra of the message itself (not of
	// messages inside it) must not mention, whether declared or not.
	ForbidExtra []string
	// MaxDepth is how deeply the message and the JSON text in its fields may be nested, if that is
	// less than Limits.MaxDepth. Zero is that.
	MaxDepth int
	// MaxExtraMembers is how many members each json_extra may have. Zero is any number.
	MaxExtraMembers int
}

// AppendJSON appends to dst the JSON form of a protobuf message in wire form
// and returns the extended slice. It trusts nothing about the bytes: text is
// checked to be UTF-8, JSON text to be JSON. It ignores fields that the message
// does not declare. On an error, always an *Error, it returns dst unchanged.
func (t *Table) AppendJSON(dst, wire []byte, o JSONOptions) ([]byte, error) {
	d := decoders.Get().(*decoder)
	out, err := d.run(t, dst, wire, o)
	d.release()
	return out, err
}
