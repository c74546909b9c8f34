package schemagen

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// SchemaFiles are the names of the schema files of a CLI version.
var SchemaFiles = [2]string{"api.schema.json", "session-events.schema.json"}

// Load reads the schemas of one CLI version from dir. They must be the pinned ones.
func Load(dir, version string, pins Pins) (*Model, error) {
	data, sums, err := readSchemas(dir)
	if err != nil {
		return nil, fmt.Errorf("schemas of %s: %w", version, err)
	}
	if err := pins.check(version, sums); err != nil {
		return nil, err
	}
	return parseSchemas(version, data, sums)
}

// readSchemas reads both schema files and their sha256 sums.
func readSchemas(dir string) (data [2][]byte, sums [2]string, err error) {
	for i, file := range SchemaFiles {
		if data[i], err = os.ReadFile(filepath.Join(dir, file)); err != nil {
			return data, sums, err
		}
		sum := sha256.Sum256(data[i])
		sums[i] = hex.EncodeToString(sum[:])
	}
	return data, sums, nil
}

func parseSchemas(version string, data [2][]byte, sums [2]string) (*Model, error) {
	m := newModel()
	m.Versions = []string{version}
	for i, file := range SchemaFiles {
		m.Sources = append(m.Sources, Source{version, file, sums[i]})
		if err := m.loadFile(data[i]); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", file, version, err)
		}
	}
	return m, m.hoistEvents()
}

func (m *Model) loadFile(data []byte) error {
	var doc struct {
		Definitions                                  json.RawMessage
		Server, Session, ClientSession, ClientGlobal json.RawMessage
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	defs, err := decodeMembers(doc.Definitions)
	if err != nil {
		return fmt.Errorf("definitions: %w", err)
	}
	for _, d := range defs {
		if err := m.loadDef(d); err != nil {
			return fmt.Errorf("definition %q: %w", d.name, err)
		}
	}
	for _, tree := range []struct {
		root Root
		raw  json.RawMessage
	}{
		{RootServer, doc.Server},
		{RootSession, doc.Session},
		{RootCallback, doc.ClientSession},
		{RootCallback, doc.ClientGlobal},
	} {
		if tree.raw == nil {
			continue
		}
		if err := m.loadMethods(tree.root, tree.raw); err != nil {
			return fmt.Errorf("methods of %s: %w", tree.root, err)
		}
	}
	return nil
}

func (m *Model) loadDef(d member) error {
	var s schema
	if err := json.Unmarshal(d.value, &s); err != nil {
		return err
	}
	t, err := s.toType()
	if err != nil {
		return err
	}
	name := renamed(d.name)
	if old, ok := m.defs[name]; ok && !sameType(old.Type, t) {
		return fmt.Errorf("differs between the two schema files")
	}
	m.addDef(&Def{Name: name, Type: t, Internal: s.internal()})
	return nil
}

func (m *Model) loadMethods(root Root, raw json.RawMessage) error {
	members, err := decodeMembers(raw)
	if err != nil {
		return err
	}
	for _, mem := range members {
		if !isObject(mem.value) {
			continue
		}
		var leaf struct {
			RPCMethod    string  `json:"rpcMethod"`
			Params       *schema `json:"params"`
			Result       *schema `json:"result"`
			Visibility   string  `json:"visibility"`
			Notification bool    `json:"notification"`
			Deprecated   bool    `json:"deprecated"`
		}
		if err := json.Unmarshal(mem.value, &leaf); err != nil {
			return fmt.Errorf("%q: %w", mem.name, err)
		}
		if leaf.RPCMethod == "" {
			if err := m.loadMethods(root, mem.value); err != nil {
				return fmt.Errorf("%q: %w", mem.name, err)
			}
			continue
		}
		x := &Method{
			Name: leaf.RPCMethod, Root: root, Result: &Type{Kind: KindNull},
			Notification: leaf.Notification, Internal: leaf.Visibility == "internal", Deprecated: leaf.Deprecated,
		}
		if leaf.Params != nil {
			if x.Params, err = leaf.Params.toType(); err != nil {
				return fmt.Errorf("params of %q: %w", x.Name, err)
			}
		}
		if leaf.Result != nil {
			if x.Result, err = leaf.Result.toType(); err != nil {
				return fmt.Errorf("result of %q: %w", x.Name, err)
			}
		}
		m.addMethod(x)
	}
	return nil
}

// eventUnion is the definition of all session events.
const eventUnion = "SessionEvent"

// hoistEvents replaces the union of event definitions by one envelope: every
// event has the same members around its data.
func (m *Model) hoistEvents() error {
	union, ok := m.defs[eventUnion]
	if !ok || union.Type.Kind != KindUnion {
		return fmt.Errorf("definition %q is no union", eventUnion)
	}
	env := &Type{Kind: KindEnvelope, Discriminator: "type", DataMember: "data", Props: envelopeProps()}
	gone := map[string]bool{}
	for _, v := range union.Type.Variants {
		if v.Kind != KindRef {
			return fmt.Errorf("a variant of %q has no name", eventUnion)
		}
		c, err := m.eventCase(v.Ref)
		if err != nil {
			return fmt.Errorf("event %q: %w", v.Ref, err)
		}
		env.Cases = append(env.Cases, c)
		gone[v.Ref] = true
	}
	union.Type = env
	var kept []string
	for _, name := range m.order {
		if gone[name] {
			delete(m.defs, name)
		} else {
			kept = append(kept, name)
		}
	}
	m.order = kept
	return nil
}

// envelopeProps are the members around the data of an event, in the order of
// their numbers.
func envelopeProps() []*Prop {
	return []*Prop{
		{Name: "type", Type: &Type{Kind: KindString}, Required: true},
		{Name: "id", Type: &Type{Kind: KindString, Format: "uuid"}, Required: true},
		{Name: "timestamp", Type: &Type{Kind: KindTime}, Required: true},
		{Name: "parentId", Type: &Type{Kind: KindString, Format: "uuid", Nullable: true}, Required: true},
		{Name: "agentId", Type: &Type{Kind: KindString}},
		{Name: "ephemeral", Type: &Type{Kind: KindBool}},
	}
}

func (m *Model) eventCase(name string) (*Case, error) {
	known := map[string]bool{}
	for _, p := range envelopeProps() {
		known[p.Name] = true
	}
	c := &Case{}
	for _, p := range m.defs[name].Type.Props {
		switch {
		case p.Name == "type" && p.Type.Kind == KindConst:
			c.Tag = strings.Trim(p.Type.Const, `"`)
		case p.Name == "data" && p.Type.Kind == KindRef:
			c.Type = p.Type
		case known[p.Name]:
		default:
			return nil, fmt.Errorf("unexpected member %q", p.Name)
		}
	}
	if c.Tag == "" || c.Type == nil {
		return nil, fmt.Errorf("no type or no data")
	}
	return c, nil
}
