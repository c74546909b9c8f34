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

// translateTable runs the benchmarks of package translate, which compare it with the
// ways that it replaces.
func (r *run) translateTable(ctx context.Context) (Table, error) {
	t := Table{
		Title:  "Translation alone",
		Note:   "The benchmarks of bridge/translate: one event or message between JSON and protobuf, without any process around it.",
		Header: []string{"benchmark", "µs", "allocations"},
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", ".", "-benchmem", "-benchtime", "200ms", "-count", strconv.Itoa(r.cfg.Repeats), "./bridge/translate")
	cmd.Dir, cmd.Stderr = r.cfg.Module, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return t, fmt.Errorf("%w: %s", err, out)
	}
	order, times, allocs := parseBenchmarks(out)
	for _, name := range order {
		t.row(name, times[name].String(), number(allocs[name].median()))
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
			case "ns/op":
				times[name] = append(times[name], v/1e3)
			case "allocs/op":
				allocs[name] = append(allocs[name], v)
			}
		}
	}
	return order, times, allocs
}
