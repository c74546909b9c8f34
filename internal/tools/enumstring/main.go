// Command enumstring is a tool of go vet that refuses string(x) where x is an enum: a defined integer type. The
// conversion compiles and gives the character with that number, not the name. go vet's own stringintconv leaves out
// types of rune's and byte's kind, and so every enum of a proto file.
//
//	go vet -vettool=PATH/enumstring ./...
package main

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/unitchecker"
)

var analyzer = &analysis.Analyzer{
	Name: "enumstring",
	Doc:  "report string(x) where x is an enum",
	Run:  run,
}

func main() { unitchecker.Main(analyzer) }

// run reports the conversions in one package.
func run(pass *analysis.Pass) (any, error) {
	for _, file := range pass.Files {
		for node := range ast.Preorder(file) {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 || !pass.TypesInfo.Types[call.Fun].IsType() {
				continue
			}
			to, from := pass.TypesInfo.TypeOf(call), pass.TypesInfo.TypeOf(call.Args[0])
			if isKind(to, types.IsString) && isEnum(from) {
				pass.Reportf(call.Pos(),
					"string conversion of %s gives a character, not the name: use its String method", from)
			}
		}
	}
	return nil, nil
}

// isEnum reports whether a type is a defined integer type. The predeclared types, also under another name, are not.
func isEnum(t types.Type) bool {
	_, defined := types.Unalias(t).(*types.Named)
	return defined && isKind(t, types.IsInteger)
}

func isKind(t types.Type, kind types.BasicInfo) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&kind != 0
}
