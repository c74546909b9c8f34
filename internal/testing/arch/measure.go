package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"
)

// measures are the sizes of a tree's hand-written Go. Types, lines and files are counted without tests.
type measures struct {
	module string
	types  map[string]*typeSize // by package and name
	lines  map[string]int       // by package
	files  map[string]int       // by package
	long   map[string][]int     // lines with too many columns, by file
}

// typeSize is what one type declares. An alias declares nothing.
type typeSize struct {
	methods, fields int
	embedded        []string // types of this module, by package and name
	composed        bool     // an interface: the parts that it is composed of are judged on their own
	// held reports that a field is a lock, a channel or a group of goroutines: the type is not mere data.
	held bool
}

// measure reads the sizes of a tree. A line is too long when it has more than the given columns.
func measure(tree fs.FS, maxColumns int) (*measures, error) {
	module, err := modulePath(tree)
	if err != nil {
		return nil, err
	}
	m := &measures{
		module: module, types: map[string]*typeSize{}, lines: map[string]int{}, files: map[string]int{},
		long: map[string][]int{},
	}
	err = walkGo(tree, func(name string, source []byte) error { return m.file(name, source, maxColumns) })
	return m, err
}

// file adds a file, unless it is generated.
func (m *measures) file(name string, source []byte, maxColumns int) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil || ast.IsGenerated(file) {
		return err
	}
	number := 0
	for line := range bytes.Lines(source) {
		number++
		if columns(line) > maxColumns {
			m.long[name] = append(m.long[name], number)
		}
	}
	if strings.HasSuffix(name, "_test.go") {
		return nil
	}
	pkg := path.Dir(name)
	m.lines[pkg] += number
	m.files[pkg]++
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv != nil {
				m.at(pkg, receiverName(decl.Recv.List[0].Type)).methods++
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok && !spec.Assign.IsValid() {
					m.declared(file, pkg, spec)
				}
			}
		}
	}
	return nil
}

// tabColumns is the width of a tab in an editor.
const tabColumns = 4

// columns is the width of a line.
func columns(line []byte) int {
	line = bytes.TrimRight(line, "\r\n")
	return utf8.RuneCount(line) + (tabColumns-1)*bytes.Count(line, []byte("\t"))
}

// at returns the entry of a type.
func (m *measures) at(pkg, name string) *typeSize {
	key := pkg + "." + name
	if m.types[key] == nil {
		m.types[key] = &typeSize{}
	}
	return m.types[key]
}

// declared adds the declaration of a struct or an interface.
func (m *measures) declared(file *ast.File, pkg string, spec *ast.TypeSpec) {
	t := m.at(pkg, spec.Name.Name)
	switch declared := spec.Type.(type) {
	case *ast.StructType:
		for _, field := range declared.Fields.List {
			t.fields += max(len(field.Names), 1)
			t.held = t.held || holds(field.Type)
			if len(field.Names) == 0 {
				m.embed(t, file, pkg, field.Type)
			}
		}
	case *ast.InterfaceType:
		t.composed = true
		for _, method := range declared.Methods.List {
			t.methods += len(method.Names)
			if len(method.Names) == 0 {
				m.embed(t, file, pkg, method.Type)
			}
		}
	}
}

// embed notes an embedded type, if it is of this module.
func (m *measures) embed(t *typeSize, file *ast.File, pkg string, embedded ast.Expr) {
	switch e := base(embedded).(type) {
	case *ast.Ident:
		t.embedded = append(t.embedded, pkg+"."+e.Name)
	case *ast.SelectorExpr:
		from, _ := e.X.(*ast.Ident)
		for _, spec := range file.Imports {
			full, _ := strconv.Unquote(spec.Path.Value)
			short, ours := strings.CutPrefix(full, m.module+"/")
			named := spec.Name != nil && from != nil && spec.Name.Name == from.Name
			if ours && (named || spec.Name == nil && from != nil && path.Base(full) == from.Name) {
				t.embedded = append(t.embedded, short+"."+e.Sel.Name)
			}
		}
	}
}

// total is the size of a type with what it has from the types that it embeds.
func (m *measures) total(key string) (methods, fields int) {
	if t := m.types[key]; t != nil && t.composed {
		return t.methods, 0
	}
	return m.sum(key, map[string]bool{})
}

// sum adds up the types not seen yet.
func (m *measures) sum(key string, seen map[string]bool) (methods, fields int) {
	t := m.types[key]
	if t == nil || seen[key] {
		return 0, 0
	}
	seen[key] = true
	methods, fields = t.methods, t.fields
	for _, e := range t.embedded {
		more, others := m.sum(e, seen)
		methods += more
		fields += max(others-1, 0) // the embedded field itself is counted
	}
	return methods, fields
}

// receiverName is the name of the type that a method belongs to.
func receiverName(receiver ast.Expr) string {
	if name, ok := base(receiver).(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// base is a type without pointer and type arguments.
func base(t ast.Expr) ast.Expr {
	for {
		switch e := t.(type) {
		case *ast.StarExpr:
			t = e.X
		case *ast.ParenExpr:
			t = e.X
		case *ast.IndexExpr:
			t = e.X
		case *ast.IndexListExpr:
			t = e.X
		default:
			return t
		}
	}
}

// holds reports whether a field of this type makes a struct more than data.
func holds(t ast.Expr) bool {
	switch t := base(t).(type) {
	case *ast.ChanType:
		return true
	case *ast.SelectorExpr:
		from, _ := t.X.(*ast.Ident)
		return from != nil && (from.Name == "sync" || from.Name == "atomic")
	}
	return false
}
