package schemagen

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// bridgeUse is a reference of copilot.bridge.v1 to a message or enum of the generated package.
var bridgeUse = regexp.MustCompile(`\bcopilot\.cli\.v1\.([A-Z]\w*)`)

// BridgeUses returns the names of the generated messages and enums that the .proto files of a folder refer to, sorted.
// They are the roots of the core. It reads the text, because these files import the files that are about to be
// generated.
func BridgeUses(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.proto"))
	if err != nil {
		return nil, fmt.Errorf("find the files of the bridge's API: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no .proto files: name the folder of copilot.bridge.v1", dir)
	}
	var names []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the bridge's API: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			code, _, _ := strings.Cut(line, "//")
			for _, m := range bridgeUse.FindAllStringSubmatch(code, -1) {
				names = append(names, m[1])
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// growCore adds everything that roots reach to the core, and returns the core. Elements never leave it, so that
// importers of its files find them there with every later CLI version.
func (l *Ledger) growCore(pl *Plan, roots []string) map[string]bool {
	core := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		m := pl.Messages[name]
		if core[name] || m == nil && pl.Enums[name] == nil {
			return
		}
		core[name] = true
		if m == nil {
			return
		}
		for _, f := range m.Fields {
			add(f.Type)
		}
	}
	for _, name := range slices.Concat(l.Core, roots) {
		add(name)
	}
	l.Core = slices.Compact(slices.Sorted(slices.Values(append(sortedKeys(core), l.Core...))))
	return core
}

// missingRoots lists the roots that nothing stands for.
func (pl *Plan) missingRoots(roots []string) []string {
	return slices.DeleteFunc(slices.Clone(roots), func(name string) bool {
		return pl.Messages[name] != nil || pl.Enums[name] != nil
	})
}
