package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
)

// Limit is a size that asks for a hard look, and one that is refused.
type Limit struct{ Look, Refuse int }

// The limits for hand-written Go, in lines.
var (
	FileLimit     = Limit{Look: 600, Refuse: 800}
	FunctionLimit = Limit{Look: 90, Refuse: 120}
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
