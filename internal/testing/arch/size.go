package arch

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Limit is a size that asks for a hard look, and one that is refused.
type Limit struct{ Look, Refuse int }

// The limits for hand-written Go, in lines.
var (
	FileLimit     = Limit{Look: 400, Refuse: 570}
	FunctionLimit = Limit{Look: 60, Refuse: 95}
)

// CheckSizes measures files and functions of hand-written Go.
func CheckSizes(tree fs.FS) (look, refuse []Finding, err error) {
	err = walkGo(tree, func(name string, source []byte) error {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		if ast.IsGenerated(file) {
			return nil
		}
		judge := func(limit Limit, where, what string, lines int) {
			f := Finding{Where: where, What: fmt.Sprintf("%s has %d lines, over %d", what, lines, limit.Look)}
			switch {
			case lines > limit.Refuse:
				f.What = fmt.Sprintf("%s has %d lines, over %d", what, lines, limit.Refuse)
				refuse = append(refuse, f)
			case lines > limit.Look:
				look = append(look, f)
			}
		}
		judge(FileLimit, name, "the file", bytes.Count(source, []byte("\n")))
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				from, to := files.Position(f.Pos()).Line, files.Position(f.End()).Line
				judge(FunctionLimit, fmt.Sprintf("%s:%d", name, from), f.Name.Name, to-from+1)
			}
		}
		return nil
	})
	return look, refuse, err
}

// sizeRules are the rows of sizes.txt.
type sizeRules struct {
	limits  map[string]int          // by kind
	ceiling map[string]*sizeCeiling // by kind and what it is of
	columns []*sizeCeiling          // of files, the first that matches counts
	config  map[string]*sizeCeiling // types of which fields are not limited
}

// sizeCeiling is a row that lifts a limit.
type sizeCeiling struct {
	line    int
	pattern pattern
	max     int
	used    int // the size that it excuses
}

// sizeKinds are the kinds of sizes that have a limit.
var sizeKinds = []string{"methods", "fields", "lines", "files", "columns"}

// CheckMeasures compares types, packages and lines with the limits and ceilings of sizes.txt. A ceiling that is not
// needed any more is a finding too. It also returns the largest types.
func CheckMeasures(tree fs.FS, rules string) (largest, findings []Finding, err error) {
	r, err := parseSizeRules(rules)
	if err != nil {
		return nil, nil, err
	}
	m, err := measure(tree, r.limits["columns"])
	if err != nil {
		return nil, nil, err
	}
	for key, t := range m.types {
		methods, fields := m.total(key)
		findings = append(findings, r.judge("methods", key, methods)...)
		if c := r.config[key]; c != nil && !t.held {
			c.used = fields
		} else {
			findings = append(findings, r.judge("fields", key, fields)...)
		}
	}
	for pkg, n := range m.lines {
		findings = append(findings, r.judge("lines", pkg, n)...)
		findings = append(findings, r.judge("files", pkg, m.files[pkg])...)
	}
	findings = append(findings, r.judgeColumns(m.long)...)
	findings = append(findings, r.stale()...)
	sortFindings(findings)
	return m.largest(5), findings, nil
}

// judge compares one size with its limit, or its ceiling.
func (r *sizeRules) judge(kind, what string, n int) []Finding {
	if n <= r.limits[kind] {
		return nil
	}
	allowed := r.limits[kind]
	if c := r.ceiling[kind+" "+what]; c != nil {
		c.used, allowed = n, c.max
	}
	if n <= allowed {
		return nil
	}
	return []Finding{{what, fmt.Sprintf("has %d %s, over %d", n, kind, allowed)}}
}

// judgeColumns compares the number of long lines of each pattern with its ceiling, and permits none elsewhere.
func (r *sizeRules) judgeColumns(long map[string][]int) (findings []Finding) {
	over := fmt.Sprintf("has over %d columns", r.limits["columns"])
	for _, name := range slices.Sorted(maps.Keys(long)) {
		row := slices.IndexFunc(r.columns, func(c *sizeCeiling) bool { return c.pattern.matches(name) })
		if row >= 0 {
			r.columns[row].used += len(long[name])
			continue
		}
		for _, line := range long[name] {
			findings = append(findings, Finding{fmt.Sprintf("%s:%d", name, line), over})
		}
	}
	for _, c := range r.columns {
		if c.used > c.max {
			what := fmt.Sprintf("%d lines of %s have over %d columns, ceiling %d",
				c.used, c.pattern, r.limits["columns"], c.max)
			findings = append(findings, Finding{fmt.Sprintf("sizes.txt:%d", c.line), what})
		}
	}
	return findings
}

// stale lists the rows that lift no limit any more.
func (r *sizeRules) stale() (findings []Finding) {
	check := func(c *sizeCeiling, limit int) {
		if c.used <= limit {
			findings = append(findings,
				Finding{fmt.Sprintf("sizes.txt:%d", c.line), "the row is no longer needed: delete it"})
		}
	}
	for key, c := range r.ceiling {
		kind, _, _ := strings.Cut(key, " ")
		check(c, r.limits[kind])
	}
	for _, c := range r.config {
		check(c, r.limits["fields"])
	}
	for _, c := range r.columns {
		check(c, 0)
	}
	return findings
}

// largest lists the types with the most methods.
func (m *measures) largest(n int) (out []Finding) {
	methods := func(key string) int { n, _ := m.total(key); return n }
	keys := slices.SortedFunc(maps.Keys(m.types), func(a, b string) int {
		return cmp.Or(cmp.Compare(methods(b), methods(a)), cmp.Compare(a, b))
	})
	for _, key := range keys[:min(n, len(keys))] {
		methods, fields := m.total(key)
		out = append(out, Finding{key, fmt.Sprintf("%d methods, %d fields", methods, fields)})
	}
	return out
}

// parseSizeRules reads sizes.txt; its head explains the rows.
func parseSizeRules(text string) (*sizeRules, error) {
	r := &sizeRules{limits: map[string]int{}, ceiling: map[string]*sizeCeiling{}, config: map[string]*sizeCeiling{}}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 0 {
			if err := r.parse(number, words); err != nil {
				return nil, fmt.Errorf("sizes.txt:%d: %w", number, err)
			}
		}
	}
	for _, kind := range sizeKinds {
		if r.limits[kind] == 0 {
			return nil, fmt.Errorf("sizes.txt has no limit of %s", kind)
		}
	}
	return r, nil
}

// parse reads one row.
func (r *sizeRules) parse(number int, words []string) error {
	if len(words) == 2 && words[0] == "config" {
		r.config[words[1]] = &sizeCeiling{line: number}
		return nil
	}
	if len(words) != 3 || words[0] != "limit" && !slices.Contains(sizeKinds, words[0]) {
		return fmt.Errorf(`want "limit KIND N", "KIND WHAT CEILING" or "config TYPE", got %q`, words)
	}
	n, err := strconv.Atoi(words[2])
	if err != nil {
		return err
	}
	c := &sizeCeiling{line: number, pattern: pattern(words[1]), max: n}
	switch words[0] {
	case "limit":
		r.limits[words[1]] = n
	case "columns":
		r.columns = append(r.columns, c)
	default:
		r.ceiling[words[0]+" "+words[1]] = c
	}
	return nil
}
