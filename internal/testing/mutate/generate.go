package mutate

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Deciding are the packages that decide about a session: their syntax trees give the generated mutations.
var Deciding = []string{
	"bridge/session", "bridge/session/history", "bridge/session/outbox", "bridge/session/reorder",
	"bridge/session/roster", "bridge/session/turn",
}

// What is not mutated, since no outcome of a session depends on it:
var (
	// A statement or a condition that names logs, audit entries, metrics or traces, and the functions of that name.
	unseen = regexp.MustCompile(`(?i)slog|logger|observe|audit|span|trace|measure`)
	// Calls that guard against races, for which there is the race detector, and that free what a context holds.
	unmutated = regexp.MustCompile(`^(R?Lock|R?Unlock|cancel|panic)$`)
	// Functions that make texts and estimates.
	unmutatedFuncs = regexp.MustCompile(`^(String|Error|Size|size)$`)
)

// Generated is a mutation made from the syntax tree.
type Generated struct {
	// Name says where it is and what it does. No two mutations have the same name, and changes elsewhere keep it.
	Name string
	// Operator is one of Operators.
	Operator string
	// File is the mutated file, and Package its folder, relative to the repository's root.
	File, Package string
	source        []byte
	from, to      int // the bytes of source that replace stands for
	replace       string
}

// Operators are the kinds of generated mutations.
var Operators = []string{"negate", "drop", "swap", "bound"}

// Apply returns the mutated text of the file.
func (g Generated) Apply() []byte {
	return slices.Concat(g.source[:g.from], []byte(g.replace), g.source[g.to:])
}

// Generate returns all mutations of the deciding packages, in an order that depends on the seed and their names only.
func Generate(root string, seed uint64) ([]Generated, error) {
	var all []Generated
	for _, pkg := range Deciding {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file) //nolint:gosec // a source of the repository
			if err != nil {
				return nil, err
			}
			some, err := GenerateFile(path.Join(pkg, filepath.Base(file)), source)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	rank := func(g Generated) []byte {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, g.Name))
		return sum[:]
	}
	slices.SortFunc(all, func(a, b Generated) int { return bytes.Compare(rank(a), rank(b)) })
	return all, nil
}

// GenerateFile returns the mutations of one file, in the order of the source.
func GenerateFile(name string, source []byte) ([]Generated, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	g := &generator{file: name, source: source, base: fset.File(file.Pos()).Base(), names: map[string]int{}}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		g.function = f.Name.Name
		if f.Recv != nil {
			g.function = strings.TrimPrefix(g.text(f.Recv.List[0].Type), "*") + "." + g.function
		}
		if !unseen.MatchString(g.function) && !unmutatedFuncs.MatchString(f.Name.Name) {
			ast.Inspect(f.Body, g.visit)
		}
	}
	slices.SortStableFunc(g.all, func(a, b Generated) int { return cmp.Compare(a.from, b.from) })
	return g.all, nil
}

// generator makes the mutations of a file.
type generator struct {
	file     string
	source   []byte
	base     int    // the position of the file's first byte
	function string // that is visited
	names    map[string]int
	all      []Generated
}

func (g *generator) text(n ast.Node) string {
	return string(g.source[int(n.Pos())-g.base : int(n.End())-g.base])
}

// add adds a mutation that replaces what the source has between two positions.
func (g *generator) add(operator string, from, to token.Pos, what, replace string) {
	name := fmt.Sprintf("%s: %s: %s %s", g.file, g.function, operator, strings.Join(strings.Fields(what), " "))
	if g.names[name]++; g.names[name] > 1 {
		name += fmt.Sprintf(" (%d)", g.names[name])
	}
	g.all = append(g.all, Generated{
		Name: name, Operator: operator, File: g.file, Package: path.Dir(g.file), source: g.source,
		from: int(from) - g.base, to: int(to) - g.base, replace: replace,
	})
}

// visit makes the mutations of a node, and reports whether the nodes in it are mutated, too.
func (g *generator) visit(n ast.Node) bool {
	if hidden(n) {
		return false
	}
	switch n := n.(type) {
	case *ast.BlockStmt:
		g.effects(n.List)
	case *ast.CommClause:
		g.effects(n.Body)
	case *ast.CaseClause:
		g.effects(n.Body)
	case *ast.IfStmt:
		g.condition(n.Cond)
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, clause := range n.Body.List {
				for _, cond := range clause.(*ast.CaseClause).List {
					g.condition(cond)
				}
			}
		}
	case *ast.BinaryExpr:
		g.operands(n)
	case *ast.SliceExpr:
		g.bound(n.Low)
		g.bound(n.High)
	}
	return true
}

// hidden reports whether nothing in a node is mutated.
func hidden(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ExprStmt, *ast.AssignStmt, *ast.DeferStmt, *ast.GoStmt, ast.Expr:
		return mentions(n)
	case *ast.IfStmt: // its body is for logs alone
		return n.Else == nil && len(n.Body.List) > 0 && !slices.ContainsFunc(n.Body.List, func(s ast.Stmt) bool { return !hidden(s) })
	}
	return false
}

// mentions reports whether a node names what no outcome depends on, outside of functions in it.
func mentions(n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			found = found || unseen.MatchString(id.Name)
		}
		_, function := n.(*ast.FuncLit)
		return !function
	})
	return found
}

// effects drops each effect of a list of statements, and swaps neighbours.
func (g *generator) effects(list []ast.Stmt) {
	for i, s := range list {
		if !isEffect(s) {
			continue
		}
		text := g.text(s)
		g.add("drop", s.Pos(), s.End(), short(text), "if false {\n"+text+"\n}")
		if i+1 == len(list) || !isEffect(list[i+1]) || !g.ordered(s, list[i+1]) {
			continue
		}
		next := list[i+1]
		between := string(g.source[int(s.End())-g.base : int(next.Pos())-g.base])
		g.add("swap", s.Pos(), next.End(), short(text)+" with "+short(g.text(next)), g.text(next)+between+text)
	}
}

// short is the beginning of a statement, without the body of a function in it.
func short(text string) string {
	first, _, more := strings.Cut(text, "\n")
	if more {
		first += " …"
	}
	return first
}

// isEffect reports whether a statement is a call or an assignment to what is there already, and is to be mutated.
func isEffect(s ast.Stmt) bool {
	var call ast.Expr
	switch s := s.(type) {
	case *ast.ExprStmt:
		call = s.X
	case *ast.DeferStmt:
		call = s.Call
	case *ast.GoStmt, *ast.SendStmt, *ast.IncDecStmt:
	case *ast.AssignStmt:
		blank := func(e ast.Expr) bool { id, ok := e.(*ast.Ident); return ok && id.Name == "_" }
		if s.Tok == token.DEFINE || !slices.ContainsFunc(s.Lhs, func(e ast.Expr) bool { return !blank(e) }) {
			return false
		}
	default:
		return false
	}
	if c, ok := call.(*ast.CallExpr); ok && unmutated.MatchString(called(c)) {
		return false
	}
	return !hidden(s)
}

// called is the name of the called function, without what is before it.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// ordered reports whether the order of two effects can matter. That of two assignments does not unless one names what the
// other sets, a deferred call does not take place where it stands, and markDirty has the session saved later.
func (g *generator) ordered(a, b ast.Stmt) bool {
	set := func(s ast.Stmt) []ast.Expr {
		switch s := s.(type) {
		case *ast.AssignStmt:
			return s.Lhs
		case *ast.IncDecStmt:
			return []ast.Expr{s.X}
		}
		return nil
	}
	names := func(s ast.Stmt, set []ast.Expr) bool {
		return slices.ContainsFunc(set, func(e ast.Expr) bool { return strings.Contains(g.text(s), g.text(e)) })
	}
	later := func(s ast.Stmt) bool {
		_, deferred := s.(*ast.DeferStmt)
		return deferred || strings.HasSuffix(g.text(s), ".markDirty()")
	}
	if later(a) || later(b) {
		return false
	}
	first, second := set(a), set(b)
	return first == nil || second == nil || names(a, second) || names(b, first)
}

// condition negates a condition. The parts of a conjunction or a disjunction are negated where they stand.
func (g *generator) condition(e ast.Expr) {
	if b, ok := ast.Unparen(e).(*ast.BinaryExpr); ok && (b.Op == token.LAND || b.Op == token.LOR) || mentions(e) {
		return
	}
	g.add("negate", e.Pos(), e.End(), g.text(e), "!("+g.text(e)+")")
}

// operands mutates a binary expression: the parts of conjunctions, comparisons, and numbers that are compared or added.
func (g *generator) operands(b *ast.BinaryExpr) {
	next := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}
	switch b.Op {
	case token.LAND, token.LOR:
		g.condition(b.X)
		g.condition(b.Y)
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		g.add("bound", b.OpPos, b.OpPos+token.Pos(len(b.Op.String())), g.text(b), next[b.Op])
		fallthrough
	case token.EQL, token.NEQ, token.ADD, token.SUB:
		for _, e := range []ast.Expr{b.X, b.Y} {
			if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.INT {
				g.increase(lit, g.text(b))
			}
		}
	}
}

// bound makes a bound of a slice larger by one.
func (g *generator) bound(e ast.Expr) {
	if lit, ok := e.(*ast.BasicLit); ok {
		g.increase(lit, "["+lit.Value+"]")
	} else if e != nil {
		g.add("bound", e.Pos(), e.End(), "["+g.text(e)+"]", g.text(e)+" + 1")
	}
}

// increase makes a number larger by one.
func (g *generator) increase(lit *ast.BasicLit, where string) {
	if n, err := strconv.Atoi(lit.Value); err == nil {
		g.add("bound", lit.Pos(), lit.End(), where+" to "+strconv.Itoa(n+1), strconv.Itoa(n+1))
	}
}
