package corpus

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Write prints a summary: how much there was, and what no typed field could hold.
func (r *Report) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	values := 0
	for _, kind := range slices.Sorted(maps.Keys(r.Values)) {
		values += r.Values[kind]
		fmt.Fprintf(b, "%6d values: %s\n", r.Values[kind], kind)
	}
	fmt.Fprintf(b, "%6d values of %d types in %d messages (%.1f MB) of %d runtimes; %d answers were errors\n",
		values, len(r.Types), r.Frames, float64(r.Bytes)/1e6, r.Runtimes, r.Errors)
	fmt.Fprintf(b, "%6d did not survive JSON → wire → JSON\n", len(r.Failures))
	fmt.Fprintf(b, "%6d are typed but for nulls that mean something, %d hold something that is not typed (%.2f %%)\n",
		r.Kept["nulls"], r.Kept["more"], 100*float64(r.Kept["more"])/float64(max(values, 1)))
	for _, p := range slices.SortedFunc(maps.Keys(r.Drift), comparePlaces) {
		fmt.Fprintf(b, "%6d × %s\n", r.Drift[p], p)
	}
	return b.Flush()
}

// Unknown returns the places that a list of known ones does not have. A row of
// the list is a place as Place.String gives it, then " # " and the reason why it
// is as it is; blank rows and rows that begin with # do not count.
func (r *Report) Unknown(list string) ([]Place, error) {
	known := make(map[string]bool)
	for n, row := range strings.Split(list, "\n") {
		if row = strings.TrimSpace(row); row == "" || row[0] == '#' {
			continue
		}
		place, reason, ok := strings.Cut(row, "#")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("row %d gives no reason: %q", n+1, row)
		}
		if place = strings.TrimSpace(place); known[place] {
			return nil, fmt.Errorf("row %d is there twice: %q", n+1, place)
		}
		known[place] = true
	}
	var out []Place
	for _, p := range slices.SortedFunc(maps.Keys(r.Drift), comparePlaces) {
		if !known[p.String()] {
			out = append(out, p)
		}
	}
	return out, nil
}
