package mutate

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
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
	// order is that in which the mutations of the file were found: what is outside comes before what is in it.
	order int
	edits []edit
}

// edit puts texts around a part of a file, or one in its place. The rune place in them stands for the mutation's number.
type edit struct {
	from, to    int // the part
	open, close string
	replaces    bool
}

// place stands for the number of a mutation in the texts of its edits.
const place = "\x00"

// Operators are the kinds of generated mutations.
var Operators = []string{"negate", "drop", "swap", "bound"}

// Generate returns all mutations of some packages, in an order that depends on the seed and their names only.
func Generate(root string, packages []string, seed uint64) ([]Generated, error) {
	exports, err := exportData(root, packages)
	if err != nil {
		return nil, err
	}
	var all []Generated
	for _, pkg := range packages {
		some, err := generatePackage(root, pkg, exports)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	rank := func(g Generated) []byte {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, g.Name))
		return sum[:]
	}
	slices.SortFunc(all, func(a, b Generated) int { return bytes.Compare(rank(a), rank(b)) })
	return all, nil
}

// generatePackage returns the mutations of a package. The types say how a number is written that stands for another one.
func generatePackage(root, pkg string, exports importer.Lookup) ([]Generated, error) {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), "*.go"))
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	fset := token.NewFileSet()
	var parsed []*ast.File
	var sources [][]byte
	for _, name := range files {
		source, err := os.ReadFile(name) //nolint:gosec // a source of the repository
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed, sources = append(parsed, file), append(sources, source)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", exports)}
	if _, err := conf.Check(pkg, fset, parsed, info); err != nil {
		return nil, err
	}
	var all []Generated
	for i, file := range parsed {
		all = append(all, generateFile(fset, path.Join(pkg, filepath.Base(files[i])), file, sources[i], info)...)
	}
	return all, nil
}

// exportData finds what the compiler says of the packages that others import.
func exportData(root string, packages []string) (importer.Lookup, error) {
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	for _, pkg := range packages {
		args = append(args, "./"+pkg)
	}
	cmd := exec.Command("go", args...) //nolint:gosec // names of packages
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[name] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }, nil
}

// generateFile returns the mutations of one file, in the order of the source.
func generateFile(fset *token.FileSet, name string, file *ast.File, source []byte, info *types.Info) []Generated {
	g := &generator{file: name, source: source, base: fset.File(file.Pos()).Base(), info: info, names: map[string]int{}}
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
	slices.SortStableFunc(g.all, func(a, b Generated) int { return cmp.Compare(a.edits[0].from, b.edits[0].from) })
	return g.all
}

// generator makes the mutations of a file.
type generator struct {
	file     string
	source   []byte
	base     int    // the position of the file's first byte
	function string // that is visited
	info     *types.Info
	names    map[string]int
	all      []Generated
}

func (g *generator) text(n ast.Node) string {
	return string(g.source[int(n.Pos())-g.base : int(n.End())-g.base])
}

// add adds a mutation.
func (g *generator) add(operator, what string, edits ...edit) {
	name := fmt.Sprintf("%s: %s: %s %s", g.file, g.function, operator, strings.Join(strings.Fields(what), " "))
	if g.names[name]++; g.names[name] > 1 {
		name += fmt.Sprintf(" (%d)", g.names[name])
	}
	g.all = append(g.all, Generated{Name: name, Operator: operator, File: g.file, Package: path.Dir(g.file), order: len(g.all), edits: edits})
}

// around is an edit that puts texts around a node.
func (g *generator) around(n ast.Node, open, close string) edit {
	return edit{from: int(n.Pos()) - g.base, to: int(n.End()) - g.base, open: open, close: close}
}

// visit makes the mutations of a node, and reports whether the nodes in it are mutated, too.
func (g *generator) visit(n ast.Node) bool {
	if hidden(n) {
		return false
	}
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.CONST
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
		g.add("drop", short(g.text(s)), g.around(s, "if !mutant.Is("+place+") { ", " }"))
		if i+1 == len(list) || !isEffect(list[i+1]) || !g.ordered(s, list[i+1]) {
			continue
		}
		next := list[i+1]
		g.add("swap", short(g.text(s))+" with "+short(g.text(next)),
			g.around(s, "if mutant.Is("+place+") { "+g.text(next)+" }; ", ""), g.around(next, "if !mutant.Is("+place+") { ", " }"))
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
	g.add("negate", g.text(e), g.around(e, "(mutant.Is("+place+") != (", "))"))
}

// operands mutates a binary expression: the parts of conjunctions, comparisons, and numbers that are compared or added.
func (g *generator) operands(b *ast.BinaryExpr) {
	function := map[token.Token]string{token.LSS: "Less", token.LEQ: "AtMost", token.GTR: "More", token.GEQ: "AtLeast"}
	switch b.Op {
	case token.LAND, token.LOR:
		g.condition(b.X)
		g.condition(b.Y)
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		at := int(b.OpPos) - g.base
		g.add("bound", g.text(b), g.around(b, "mutant."+function[b.Op]+"("+place+", ", ")"),
			edit{from: at, to: at + len(b.Op.String()), open: ",", replaces: true})
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
		g.add("bound", "["+g.text(e)+"]", g.more(e))
	}
}

// increase makes a number larger by one.
func (g *generator) increase(lit *ast.BasicLit, where string) {
	if n, err := strconv.Atoi(lit.Value); err == nil {
		g.add("bound", where+" to "+strconv.Itoa(n+1), g.more(lit))
	}
}

// more is an edit that adds one to a number.
func (g *generator) more(e ast.Expr) edit {
	one := "mutant.One(" + place + ")"
	if t := g.info.TypeOf(e); t != nil && t != types.Typ[types.Int] && t != types.Typ[types.UntypedInt] {
		one = types.TypeString(t, (*types.Package).Name) + "(" + one + ")"
	}
	return g.around(e, "(", " + "+one+")")
}
