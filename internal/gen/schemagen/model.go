package schemagen

// Kind is the kind of JSON value a Type describes.
type Kind int

// The kinds.
const (
	KindAny      Kind = iota // any JSON value
	KindNull                 // null only
	KindBool                 // true or false
	KindInt                  // a whole number
	KindNumber               // a number
	KindString               // a string
	KindTime                 // a string holding a date and time
	KindBytes                // a string holding base64
	KindEnum                 // one of several strings
	KindConst                // one single value
	KindObject               // an object with known members
	KindMap                  // an object used as a dictionary
	KindList                 // an array
	KindUnion                // one of several types
	KindRef                  // a definition, by name
	KindHandle               // an in-process handle: never on the wire
	KindEnvelope             // an object whose payload's type another member names
)

// Type is a JSON type, as merged from all supported versions.
type Type struct {
	Kind     Kind
	Ref      string   // KindRef
	Elem     *Type    // KindList, KindMap
	Props    []*Prop  // KindObject, KindEnvelope: members
	Open     bool     // KindObject: members beyond Props are expected
	Variants []*Type  // KindUnion
	Values   []*Value // KindEnum
	Const    string   // KindConst: JSON text
	Nullable bool     // null is possible as well
	Absent   bool     // the whole value may be left out ("undefined")
	Presence bool     // a list whose emptiness differs from its absence

	Discriminator string  // KindEnvelope, or a union that names its own
	DataMember    string  // KindEnvelope
	Cases         []*Case // KindEnvelope, or a union with tags

	Format      string // uuid, uri, duration …
	Min, Max    string
	DefaultJSON string
	Extensible  bool // an enum that is documented to grow
	Internal    bool
	Deprecated  bool

	Life   Life
	Origin string // the definition that stands for it in the newest version
}

// Case is one alternative of an envelope.
type Case struct {
	Tag  string
	Type *Type
	Life Life
}

// Prop is a member of an object.
type Prop struct {
	Name       string
	Type       *Type
	Required   bool
	Internal   bool
	Deprecated bool
	Doc        string // ours; never the schema's
	Life       Life
}

// Value is a value of an enum.
type Value struct {
	Name string
	Doc  string
	Life Life
}

// Life is the span of versions in which an element is found, as indices into
// Model.Versions. The overlay belongs to no version and lives always.
type Life struct {
	First, Last int
}

// Def is a named type.
type Def struct {
	Name     string
	Type     *Type
	Doc      string
	Internal bool
	Overlay  bool
	Fragment bool   // overlay: only there to be included
	Home     string // overlay: the file it was described in
	Life     Life
}

// Root says which side of the connection a method belongs to.
type Root string

// The roots: methods of the CLI (server, session) and of the client.
const (
	RootServer   Root = "server"
	RootSession  Root = "session"
	RootCallback Root = "callback"
)

// Method is a JSON-RPC method.
type Method struct {
	Name         string
	Root         Root
	Params       *Type // nil: none
	Result       *Type // KindNull: none
	Notification bool
	Internal     bool
	Deprecated   bool
	Overlay      bool
	Doc          string
	Life         Life
}

// Model is everything known about the CLI's JSON over a range of versions.
type Model struct {
	Versions []string
	Sources  []Source
	defs     map[string]*Def
	order    []string
	methods  map[string]*Method
	morder   []string
	// Differences has, by place, the types that differ between versions so much that a
	// rule had to decide, and which one did: see join.
	Differences map[string]string
}

// Source is one schema file that went into a Model.
type Source struct {
	Version, File, SHA256 string
}

func newModel() *Model {
	return &Model{defs: map[string]*Def{}, methods: map[string]*Method{}, Differences: map[string]string{}}
}

func (m *Model) addDef(d *Def) {
	if _, ok := m.defs[d.Name]; !ok {
		m.order = append(m.order, d.Name)
	}
	m.defs[d.Name] = d
}

func (m *Model) addMethod(x *Method) {
	if _, ok := m.methods[x.Name]; !ok {
		m.morder = append(m.morder, x.Name)
	}
	m.methods[x.Name] = x
}

// newest is the index of the newest version.
func (m *Model) newest() int { return len(m.Versions) - 1 }

// ever is the life of an element of all versions.
func (m *Model) ever() Life { return Life{0, m.newest()} }

// resolve follows references until it meets a type that is none. The second
// result is the name of the last definition passed.
func (m *Model) resolve(t *Type) (*Type, string) {
	name := ""
	nullable, absent := false, false
	for t.Kind == KindRef {
		nullable = nullable || t.Nullable
		absent = absent || t.Absent
		name = t.Ref
		t = m.defs[t.Ref].Type
	}
	if nullable && !t.Nullable || absent && !t.Absent {
		c := *t
		c.Nullable, c.Absent = c.Nullable || nullable, c.Absent || absent
		t = &c
	}
	return t, name
}
