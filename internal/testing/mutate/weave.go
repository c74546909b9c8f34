package mutate

import (
	"bytes"
	_ "embed"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// mutantPackage is the folder of package mutant.
const mutantPackage = "internal/testing/mutate/mutant"

//go:embed mutant/mutant.go
var mutantSource []byte

// weave returns the source of a file with all of its mutations, each with the number that numbers has for its name.
func weave(source []byte, module string, all []Generated, numbers map[string]int) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", source, parser.PackageClauseOnly)
	if err != nil {
		return nil, err
	}
	name := fset.Position(file.Name.End()).Offset
	edits := []edit{{from: name, to: name, open: "; import mutant " + strconv.Quote(module+"/"+mutantPackage)}}
	for _, g := range slices.SortedFunc(slices.Values(all), func(a, b Generated) int { return a.order - b.order }) {
		number := strconv.Itoa(numbers[g.Name])
		for _, e := range g.edits {
			e.open, e.close = strings.ReplaceAll(e.open, place, number), strings.ReplaceAll(e.close, place, number)
			edits = append(edits, e)
		}
	}
	// What is outside comes first: it opens before and closes behind what is in it.
	slices.SortStableFunc(edits, func(a, b edit) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	opens, closes, replaced := map[int]string{}, map[int]string{}, map[int]int{}
	for _, e := range edits {
		opens[e.from] += e.open
		closes[e.to] = e.close + closes[e.to]
		if e.replaces {
			replaced[e.from] = e.to
		}
	}
	var out bytes.Buffer
	for at := 0; at < len(source); {
		out.WriteString(closes[at])
		out.WriteString(opens[at])
		if to := replaced[at]; to > at {
			at = to
			continue
		}
		out.WriteByte(source[at])
		at++
	}
	return out.Bytes(), nil
}
