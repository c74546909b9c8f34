package schemagen

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// Ledger remembers the number of every field and enum value there ever was. A
// number is never given twice: an element that goes leaves its number reserved,
// one whose type changes gets a new number.
type Ledger struct {
	// Tables is the sum of the tables that the committed files were made with: see
	// TablesSum.
	Tables string `json:"tables"`
	// Versions are the CLI versions whose schemas went into it, oldest first.
	Versions []string `json:"versions"`
	// Messages has, by message, the numbers by "member|type"; cases of a oneof
	// are "oneof/name|type".
	Messages map[string]map[string]int `json:"messages"`
	// Enums has, by enum, the numbers by JSON value.
	Enums map[string]map[string]int `json:"enums"`
	// Shapes has, by message, the shapes it ever had, where they are not just that
	// of an object: the fields numbered 1000 and 1001 come and go with them.
	Shapes map[string][]Shape `json:"shapes"`
	// Core has the messages and enums of the core, sorted: what copilot.bridge.v1 reaches, or once reached.
	Core []string `json:"core"`
	// Differences has, by place, what the versions declare so differently that a rule
	// had to decide, and which one did.
	Differences map[string]string `json:"differences"`
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{Messages: map[string]map[string]int{}, Enums: map[string]map[string]int{},
		Shapes: map[string][]Shape{}}
}

// ReadLedger reads a ledger; a missing file is an empty one.
func ReadLedger(path string) (*Ledger, error) {
	l := NewLedger()
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	if err := json.Unmarshal(data, l); err != nil {
		return nil, fmt.Errorf("read ledger %s: %w", path, err)
	}
	return l, nil
}

// Write writes the ledger.
func (l *Ledger) Write(path string) error {
	data, err := json.MarshalIndent(l, "", " ")
	if err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	return nil
}

// firstCase is the smallest number of an envelope's cases: room is left for
// members around the payload.
const firstCase = 10

// number gives every element of the plan its number, and adds those it has not
// seen yet.
func (l *Ledger) number(pl *Plan) {
	for _, name := range sortedKeys(pl.Messages) {
		l.numberMessage(pl.Messages[name])
	}
	for _, name := range sortedKeys(pl.Enums) {
		l.numberEnum(pl.Enums[name])
	}
	for _, v := range pl.Model.Versions {
		if !slices.Contains(l.Versions, v) {
			l.Versions = append(l.Versions, v)
		}
	}
	slices.SortFunc(l.Versions, CompareVersions)
	l.Differences = pl.Model.Differences
}

func (l *Ledger) numberMessage(m *Message) {
	known := l.Messages[m.Name]
	if known == nil {
		known = map[string]int{}
	}
	next, nextCase := 1, 1
	if m.Shape == ShapeEnvelope {
		nextCase = firstCase
	}
	for _, n := range known {
		next = max(next, n+1)
	}
	nextCase = max(nextCase, next)
	used := map[int]bool{}
	for _, f := range m.Fields {
		key := ledgerKey(f)
		n, ok := known[key]
		if !ok {
			n = freeNumber(next)
			if f.Case {
				n = freeNumber(max(next, nextCase))
			}
			known[key] = n
			next = n + 1
		}
		f.Number = n
		used[n] = true
	}
	for _, n := range l.numberShape(m) {
		used[n] = true
	}
	l.Messages[m.Name] = known
	m.Reserved = append(m.Reserved, retired(known, used)...)
	slices.Sort(m.Reserved)
	slices.SortStableFunc(m.Fields, func(a, b *Field) int { return a.Number - b.Number })
}

// freeNumber steps over the numbers that are spoken for.
func freeNumber(n int) int {
	switch {
	case n == jsonExtraNumber, n == unrecognizedNumber:
		return unrecognizedNumber + 1
	case n >= 19000 && n <= 19999: // protobuf's own
		return 20000
	}
	return n
}

func ledgerKey(f *Field) string {
	switch {
	case f.Case:
		return "oneof/" + f.Name + "|" + f.typeSig()
	case f.JSON == "":
		return f.Name + "|" + f.typeSig()
	case f.Raw:
		return f.JSON + "|json"
	}
	return f.JSON + "|" + f.typeSig()
}

// numberShape notes the shape of a message. It returns the catch-all numbers the
// message has, and reserves those it had in another shape.
func (l *Ledger) numberShape(m *Message) []int {
	_, known := l.Messages[m.Name]
	ever := l.Shapes[m.Name]
	if known && ever == nil {
		ever = []Shape{ShapeObject}
	}
	if !slices.Contains(ever, m.Shape) {
		ever = append(ever, m.Shape)
	}
	if !slices.Equal(ever, []Shape{ShapeObject}) {
		l.Shapes[m.Name] = ever
	}
	now := catchAlls(m.Shape)
	for _, s := range ever {
		for _, n := range catchAlls(s) {
			if !slices.Contains(now, n) && !slices.Contains(m.Reserved, n) {
				m.Reserved = append(m.Reserved, n)
			}
		}
	}
	return now
}

// catchAlls are the numbers of the fields for what does not fit a shape.
func catchAlls(s Shape) []int {
	switch s {
	case ShapeObject:
		return []int{jsonExtraNumber}
	case ShapeEnvelope:
		return []int{jsonExtraNumber, unrecognizedNumber}
	}
	return []int{unrecognizedNumber}
}

// retired lists the numbers that were assigned and are not in use any more.
func retired(known map[string]int, used map[int]bool) []int {
	var numbers []int
	for _, n := range known {
		if !used[n] {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

func (l *Ledger) numberEnum(e *Enum) {
	known := l.Enums[e.Name]
	if known == nil {
		known = map[string]int{}
		l.Enums[e.Name] = known
	}
	next := 1
	for _, n := range known {
		next = max(next, n+1)
	}
	used := map[int]bool{}
	for _, v := range e.Values {
		n, ok := known[v.JSON]
		if !ok {
			n = next
			known[v.JSON] = n
			next++
		}
		v.Number = n
		used[n] = true
	}
	for _, n := range known {
		if !used[n] {
			e.Reserved = append(e.Reserved, n)
		}
	}
	slices.Sort(e.Reserved)
	slices.SortStableFunc(e.Values, func(a, b *EnumValue) int { return a.Number - b.Number })
}
