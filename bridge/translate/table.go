package translate

import (
	"sync/atomic"

	"google.golang.org/protobuf/reflect/protoreflect"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// The two field numbers that every message uses alike.
const (
	extraNumber        = 1000 // json_extra
	unrecognizedNumber = 1001 // unrecognized
)

const (
	extraTag        = extraNumber<<3 | 2
	unrecognizedTag = unrecognizedNumber<<3 | 2
)

// The reserved members of json_extra.
const (
	absentName = "$absent"
	valueName  = "$value"
)

// Table is the compiled plan for one message type. Nothing but hints changes in
// it once it is compiled; it is safe for concurrent use.
type Table struct {
	md     protoreflect.MessageDescriptor
	limits Limits
	shape  jsonv1.Shape

	// Parts that a message of any shape can have.
	hasExtra        bool
	hasUnrecognized bool
	dense           []*field // by number
	sparse          map[int32]*field

	// Objects and envelopes.
	members  []member
	index    names // of members, by JSON name
	required mask
	consts   string // `"a":"x","b":true`
	// follows holds, by one more than a member (zero for the beginning), which
	// one came after it last time: producers hardly ever change their order.
	follows []atomic.Int32

	// Envelopes.
	typeMember int
	dataMember int

	// Unions and envelopes.
	discriminator string
	cases         []*field
	tags          names // index into cases by discriminator value

	// Unions.
	byKind   [jsonKinds][]*field // candidates in the order to try them
	untagged []*field            // candidates for an object that no tag chose

	// Lists, maps and bare values.
	sole *field
}

func (t *Table) name() string { return string(t.md.FullName()) }

// mask is a set of members.
type mask [4]uint64

const maxMembers = 64 * len(mask{})

func (m *mask) has(i int) bool { return m[i>>6&3]&(1<<(i&63)) != 0 }
func (m *mask) add(i int)      { m[i>>6&3] |= 1 << (i & 63) }

func (m *mask) covers(o *mask) bool {
	return o[0]&^m[0]|o[1]&^m[1]|o[2]&^m[2]|o[3]&^m[3] == 0
}

// role says what a member of an object is to its message.
type role uint8

const (
	roleField role = iota
	roleConst      // has no field
	roleType       // an envelope's discriminator: a field, and it chooses the payload's
	roleData       // an envelope's payload
)

type member struct {
	name   string
	quoted string // "name", as it stands in JSON
	key    string // the same with a colon
	role   role
	field  *field // nil for consts and data
	value  []byte // of a const
}

// valueKind is how one value of a field is held.
type valueKind uint8

const (
	kindString valueKind = iota
	kindBool
	kindInt
	kindDouble
	kindBytes
	kindEnum
	kindTimestamp
	kindMessage
	kindText // JSON text
)

type cardinality uint8

const (
	single cardinality = iota
	list
	dictionary
)

// zeroRule is what becomes of a zero value, which a field without presence
// cannot tell from nothing.
type zeroRule uint8

const (
	zeroKept    zeroRule = iota // the field has presence
	zeroImplied                 // unset stands for zero
	zeroMisfit                  // unset stands for null or absence
)

type field struct {
	name   string // of the proto field, for paths
	member int    // index in Table.members; -1 when it is none
	key    string // "name": as it stands in JSON; empty when it is no member
	number int32

	tag       uint64 // before one value; of the entry, for a dictionary
	packedTag uint64 // 0 when elements of a list are not packed
	kind      valueKind
	card      cardinality
	zero      zeroRule
	required  bool
	nullable  bool // null leaves the field unset
	spareNull bool // null of this optional member means something
	takesNull bool // the schema permits null
	oneof     bool

	zeroText string // what an unset required member is written as; empty: it is left out
	message  *Table
	enum     *enum
	entry    *field // a dictionary's value field
	tags     []string
}

// enum maps the values of an enum both ways.
type enum struct {
	byValue  names
	byNumber map[int32]string // quoted, escaped
}

// accepts tells which kinds of JSON value a field's single value can hold, as a
// bit per jsonKind, not counting what an unrecognized field could keep.
func (f *field) accepts() uint8 {
	switch f.card {
	case list:
		return 1 << jsonArray
	case dictionary:
		return 1 << jsonObject
	}
	switch f.kind {
	case kindBool:
		return 1 << jsonBool
	case kindInt, kindDouble:
		return 1 << jsonNumber
	case kindMessage:
		return f.message.accepts()
	case kindText:
		return 1<<jsonKinds - 1
	}
	return 1 << jsonString
}

func (t *Table) accepts() uint8 {
	switch t.shape {
	case jsonv1.Shape_SHAPE_UNION:
		var m uint8
		for kind, candidates := range t.byKind {
			if len(candidates) > 0 {
				m |= 1 << kind
			}
		}
		return m
	case jsonv1.Shape_SHAPE_LIST:
		return 1 << jsonArray
	case jsonv1.Shape_SHAPE_VALUE:
		return t.sole.accepts() | 1<<jsonNull
	case jsonv1.Shape_SHAPE_NULL:
		return 1 << jsonNull
	}
	return 1 << jsonObject
}

// field returns the field of a number, nil when the message declares none.
func (t *Table) field(number uint64) *field {
	if number < uint64(len(t.dense)) {
		return t.dense[number]
	}
	if t.sparse == nil || number > 1<<29 {
		return nil
	}
	return t.sparse[int32(number)]
}

func (t *Table) isObject() bool {
	return t.shape == jsonv1.Shape_SHAPE_OBJECT || t.shape == jsonv1.Shape_SHAPE_ENVELOPE
}
