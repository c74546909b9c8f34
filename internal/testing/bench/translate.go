package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// translations are the reported benchmarks, in the order of the columns.
var translations = []struct{ benchmark, column string }{
	{"AppendWire", "JSON → wire"},
	{"AppendJSON", "wire → JSON"},
	{"ScanFrame", "finding the event in its frame"},
	{"Peers/valid", "encoding/json: Valid"},
	{"Peers/any", "encoding/json: decode, untyped"},
	{"Peers/structs", "encoding/json: decode into structs"},
	{"Peers/proto", "wire → structs → wire"},
	{"Peers/protojson", "wire → structs → protojson"},
	{"Peers/reference", "reference, JSON → structs"},
}

// translateTable runs the benchmarks of package translate, which compare it with the
// ways that it replaces.
func (r *run) translateTable(ctx context.Context) (Table, error) {
	t := Table{
		Title: "Translation alone",
		Note: "The benchmarks of bridge/translate, µs of CPU time: medians, and the allocations of each. " +
			"Targets for the mean of real events: 1.0 µs from JSON to the wire form, 0.8 µs back (1 KB), no " +
			"allocations.",
		Header: []string{"event"},
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "AppendWire|AppendJSON|ScanFrame|Peers",
		"-benchmem", "-benchtime", "50ms", "-count", strconv.Itoa(r.cfg.Repeats), "./bridge/translate")
	cmd.Dir, cmd.Stderr = r.cfg.Module, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return t, fmt.Errorf("%w: %s", err, out)
	}
	order, times, allocs := parseBenchmarks(out)
	rows := map[string][]string{}
	for i, b := range translations {
		t.Header = append(t.Header, b.column)
		for _, name := range order {
			event, ok := strings.CutPrefix(name, b.benchmark+"/")
			if !ok {
				continue
			}
			if i == 0 {
				t.row(event)
			}
			rows[event] = append(rows[event],
				fmt.Sprintf("%s (%.0f)", number(times[name].median()), allocs[name].median()))
		}
	}
	for i, row := range t.Rows {
		t.Rows[i] = append(row, rows[row[0]]...)
	}
	return t, nil
}

// parseBenchmarks reads the output of go test -bench.
func parseBenchmarks(out []byte) (order []string, times, allocs map[string]sample) {
	times, allocs = map[string]sample{}, map[string]sample{}
	for scan := bufio.NewScanner(bytes.NewReader(out)); scan.Scan(); {
		words := strings.Fields(scan.Text())
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(words[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		if times[name] == nil {
			order = append(order, name)
		}
		for i := 2; i+1 < len(words); i += 2 {
			v, err := strconv.ParseFloat(words[i], 64)
			if err != nil {
				continue
			}
			switch words[i+1] {
			case "cpu-ns/op":
				times[name] = append(times[name], v/1e3)
			case "allocs/op":
				allocs[name] = append(allocs[name], v)
			}
		}
	}
	return order, times, allocs
}
