package arch

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Finding is one place that breaks a rule.
type Finding struct {
	// Where is a path relative to the root, with a line where one is known.
	Where string
	// What is the broken rule, and how it is broken.
	What string
}

// String gives the finding on one line, place first.
func (f Finding) String() string { return f.Where + ": " + f.What }

// skipped are the directories and files, by name, that hold nothing written by us. Cargo.lock is not committed.
var skipped = map[string]bool{
	".git": true, ".cache": true, ".tools": true, "bin": true,
	"node_modules": true, "__pycache__": true, "target": true, "dist": true,
	"Cargo.lock": true,
}

// walkFiles calls visit for every file of the tree that could be committed.
func walkFiles(tree fs.FS, visit func(name string) error) error {
	return fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skipped[entry.Name()]:
			return fs.SkipDir
		case !entry.Type().IsRegular() || skipped[entry.Name()]:
			// In a linked worktree .git is a file.
			return nil
		}
		return visit(name)
	})
}

// walkGo calls visit for every Go file of the root module. It leaves out nested modules and the folders that the go
// command ignores.
func walkGo(tree fs.FS, visit func(name string, source []byte) error) error {
	return fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if name != "." && (ignoredByGo(entry.Name()) || hasModule(tree, name)) {
				return fs.SkipDir
			}
			return nil
		case path.Ext(name) != ".go" || !entry.Type().IsRegular():
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		return visit(name, source)
	})
}

// ignoredByGo reports that no package is looked for in a directory of that name.
func ignoredByGo(name string) bool {
	return skipped[name] || name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

// hasModule reports that a directory is the root of a module.
func hasModule(tree fs.FS, dir string) bool {
	_, err := fs.Stat(tree, path.Join(dir, "go.mod"))
	return err == nil
}

// modulePath reads the name of the root module.
func modulePath(tree fs.FS) (string, error) {
	text, err := fs.ReadFile(tree, "go.mod")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", fmt.Errorf("go.mod names no module")
}
