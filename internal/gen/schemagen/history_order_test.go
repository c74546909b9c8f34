package schemagen

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSchemaHistoryInAnyOrder takes the versions in one by one, as make schema does, the newest first and in a random
// order. Each step must be wire-compatible with its predecessor. The result is the committed one, except for the
// numbers.
func TestSchemaHistoryInAnyOrder(t *testing.T) {
	t.Parallel()
	models := schemaModels(t)
	buf := bufCommand(t)
	want := committedWithoutNumbers(t)
	backwards, shuffled := slices.Clone(models), slices.Clone(models)
	slices.Reverse(backwards)
	rand.New(rand.NewPCG(13, 81)).Shuffle(len(shuffled), func(i, j int) {
		shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
	})
	for name, order := range map[string][]*Model{"newest first": backwards, "shuffled": shuffled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			last := takeIn(t, buf, order)
			got := map[string]string{}
			for file, text := range last.Files {
				got[file] = withoutNumbers(text)
			}
			for file := range want {
				if got[file] != want[file] {
					t.Errorf("%s differs from what is committed in more than numbers", file)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d files, %d are committed", len(got), len(want))
			}
		})
	}
}

// takeIn takes versions in, in the order given, and returns what the last one makes.
func takeIn(t *testing.T, buf []string, order []*Model) *Output {
	t.Helper()
	var have []*Model
	var last *Output
	ledger, before := NewLedger(), ""
	for _, m := range order {
		have = append(have, m)
		slices.SortFunc(have, func(a, b *Model) int { return CompareVersions(a.Versions[0], b.Versions[0]) })
		var err error
		if last, err = Roll(have, ledger, bridgeUses(t)); err != nil {
			t.Fatalf("%s: %v", m.Versions[0], err)
		}
		dir := workspace(t, last)
		if before != "" {
			run(t, dir, buf, "breaking", "--against", before)
		}
		before = dir
		t.Logf("%s: %d files, %d differences by rule", m.Versions[0], len(last.Files), len(last.Plan.Model.Differences))
	}
	run(t, before, buf, "lint")
	return last
}

func committedWithoutNumbers(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..", "..", "proto")
	files, err := filepath.Glob(filepath.Join(root, protoDir, "*.proto"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out[protoDir+"/"+filepath.Base(file)] = withoutNumbers(string(text))
	}
	return out
}

var fieldNumber = regexp.MustCompile(` = \d+(;| \[)`)

// withoutNumbers is the text of a .proto file without numbers, and with the lines of
// each top-level declaration in alphabetical order: fields stand in that of their numbers.
func withoutNumbers(text string) string {
	var out, block []string
	for line := range strings.Lines(text) {
		line = fieldNumber.ReplaceAllString(strings.TrimRight(line, "\n"), " = N$1")
		if strings.HasPrefix(strings.TrimSpace(line), "reserved ") {
			continue
		}
		block = append(block, line)
		if line == "}" {
			slices.Sort(block)
			out, block = append(out, block...), nil
		}
	}
	return strings.Join(append(out, block...), "\n")
}
