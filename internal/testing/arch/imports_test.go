package arch

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// imported is one import of a package: its path, shortened to be relative to the
// module if it is ours, and where it stands.
type imported struct {
	path  string
	ours  bool
	where string
}

// importGraph maps each package of the module to what it imports directly. Tests are
// left out: they may reach for anything, being linked into nothing.
type importGraph map[string][]imported

// readImports reads the graph from the sources, with any build tags.
func readImports(tree fs.FS) (importGraph, error) {
	module, err := modulePath(tree)
	if err != nil {
		return nil, err
	}
	graph := importGraph{}
	err = walkGo(tree, func(name string, source []byte) error {
		pkg := path.Dir(name)
		graph[pkg] = slices.Clip(graph[pkg])
		if strings.HasSuffix(name, "_test.go") {
			return nil
		}
		found, err := fileImports(name, source, module)
		graph[pkg] = append(graph[pkg], found...)
		return err
	})
	return graph, err
}

// fileImports lists what one file imports.
func fileImports(name string, source []byte, module string) ([]imported, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var found []imported
	for _, spec := range file.Imports {
		full, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		short, ours := strings.CutPrefix(full, module+"/")
		where := fmt.Sprintf("%s:%d", name, files.Position(spec.Pos()).Line)
		found = append(found, imported{path: short, ours: ours, where: where})
	}
	return found, nil
}

// CheckImports applies the rules, given as text, to the tree's Go packages. Besides
// violations it finds rows that bind no package and exceptions that excuse nothing,
// so that the file stays true.
func CheckImports(tree fs.FS, rules string) ([]Finding, error) {
	rows, err := parseRules(rules)
	if err != nil {
		return nil, err
	}
	graph, err := readImports(tree)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, row := range rows {
		findings = append(findings, row.violations(graph)...)
		findings = append(findings, row.stale(graph)...)
	}
	return findings, nil
}

// forbids reports whether an import breaks the rule, exceptions aside.
func (r rule) forbids(i imported) bool {
	listed := anyMatches(r.imports, i.path)
	if r.verb == within {
		return i.ours && !listed
	}
	return listed
}

// violations lists the imports that break the rule.
func (r rule) violations(graph importGraph) []Finding {
	var findings []Finding
	for pkg, imports := range graph {
		if !anyMatches(r.packages, pkg) || anyMatches(r.exceptPackages, pkg) {
			continue
		}
		for _, i := range imports {
			if r.forbids(i) && !anyMatches(r.exceptImports, i.path) {
				what := fmt.Sprintf("%s must not import %s (imports.txt line %d: %s)", pkg, i.path, r.line, r.reason)
				findings = append(findings, Finding{Where: i.where, What: what})
			}
		}
	}
	sortFindings(findings)
	return findings
}

// stale lists the patterns of the rule that do nothing.
func (r rule) stale(graph importGraph) []Finding {
	var dead []string
	for _, p := range r.packages {
		if !graph.has(p) {
			dead = append(dead, fmt.Sprintf("no package matches %q", p))
		}
	}
	for _, p := range r.exceptPackages {
		if !r.excuses(graph, p, "...") {
			dead = append(dead, fmt.Sprintf("the exception of package %q excuses nothing", p))
		}
	}
	for _, p := range r.exceptImports {
		if !r.excuses(graph, "...", p) {
			dead = append(dead, fmt.Sprintf("the exception of import %q excuses nothing", p))
		}
	}
	findings := make([]Finding, len(dead))
	for i, what := range dead {
		findings[i] = Finding{Where: fmt.Sprintf("imports.txt:%d", r.line), What: what}
	}
	return findings
}

// excuses reports that some package under the first pattern has an import under the
// second one that the rule would forbid if it had no exceptions.
func (r rule) excuses(graph importGraph, packages, imports pattern) bool {
	for pkg, list := range graph {
		if !packages.matches(pkg) || !anyMatches(r.packages, pkg) {
			continue
		}
		if slices.ContainsFunc(list, func(i imported) bool { return imports.matches(i.path) && r.forbids(i) }) {
			return true
		}
	}
	return false
}

// has reports that a package of the module matches.
func (g importGraph) has(p pattern) bool {
	for pkg := range g {
		if p.matches(pkg) {
			return true
		}
	}
	return false
}

// sortFindings orders findings by place, since they come from maps.
func sortFindings(findings []Finding) {
	slices.SortFunc(findings, func(a, b Finding) int { return strings.Compare(a.String(), b.String()) })
}
