// Package binsize measures a Go program of the ELF format: its size when it is stripped, and the code of its parts.
package binsize

import (
	"cmp"
	"debug/elf"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Report has the sizes of a program, in bytes.
type Report struct {
	// Stripped is the size that the program has without its symbol table and debug information.
	Stripped int64
	// Code, Tables and Constants are parts of Stripped: machine code, the runtime's tables of functions and lines,
	// and read-only data such as types, texts, descriptors and embedded files.
	Code, Tables, Constants int64
	// ByName says that the program calls methods by names that are not constants. The linker then keeps the exported
	// methods of all types that the program uses, such as every getter of every generated message.
	ByName bool
	// Parts has the code of each group of packages, the largest first.
	Parts []Part
}

// Part is a group of packages.
type Part struct {
	Name string
	// Code is the machine code of the group's functions.
	Code int64
}

// witness is a function that a program only has if the linker keeps all exported methods: a method that the standard
// library itself does not call.
const witness = "reflect.Value.Methods"

// Read measures the program in the file, which must have its symbol table.
func Read(path string) (Report, error) {
	f, err := elf.Open(path)
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = f.Close() }()
	symbols, err := f.Symbols()
	if err != nil {
		return Report{}, fmt.Errorf("%s: %w; build it without -ldflags -s", path, err)
	}
	report := Report{Stripped: stripped(f)}
	report.Code = size(f, ".text")
	report.Tables = size(f, ".gopclntab")
	report.Constants = size(f, ".rodata")
	code := map[string]int64{}
	for _, symbol := range symbols {
		if elf.ST_TYPE(symbol.Info) != elf.STT_FUNC {
			continue
		}
		code[group(packageOf(symbol.Name))] += int64(symbol.Size)
		report.ByName = report.ByName || symbol.Name == witness
	}
	for name, n := range code {
		report.Parts = append(report.Parts, Part{Name: name, Code: n})
	}
	slices.SortFunc(report.Parts, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.Code, a.Code), strings.Compare(a.Name, b.Name))
	})
	return report, nil
}

// stripped returns the size of the sections that a running program needs, with the headers.
func stripped(f *elf.File) int64 {
	var end int64
	sections := 2 // the first, which is empty, and the sections' names
	for _, section := range f.Sections {
		if section.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		sections++
		if section.Type != elf.SHT_NOBITS {
			end = max(end, int64(section.Offset+section.FileSize))
		}
	}
	const header = 64 // of a section, in a file of 64 bits
	return end + int64(sections*header)
}

func size(f *elf.File, section string) int64 {
	if s := f.Section(section); s != nil {
		return int64(s.Size)
	}
	return 0
}

// packageOf returns the import path in the name of a function or method.
func packageOf(symbol string) string {
	if strings.HasPrefix(symbol, "type:") || strings.HasPrefix(symbol, "go:") {
		return "runtime" // comparisons and wrappers that the compiler makes
	}
	symbol, _, _ = strings.Cut(symbol, "[") // the type arguments have paths too
	dir, name := "", symbol
	if i := strings.LastIndexByte(symbol, '/'); i >= 0 {
		dir, name = symbol[:i+1], symbol[i+1:]
	}
	name, _, _ = strings.Cut(name, ".")
	return dir + name
}

const module = "github.com/copilot-grpc/copilot-grpc/"

// groups are the parts, by prefixes of import paths; the first that fits counts.
var groups = []struct{ prefix, name string }{
	{module + "gen/go/copilot/cli/", "messages of copilot.cli.v1"},
	{module + "gen/", "messages of copilot.bridge.v1"},
	{module + "bridge", "bridge"},
	{module + "server", "server"},
	{module + "internal/cluster", "NATS, the cluster"},
	{module + "internal/shim", "shim"},
	{module + "clients/go", "Go library, for call, demo and shim"},
	{module, "commands, settings, the rest of ours"},
	{"github.com/nats-io/", "NATS, the cluster"},
	{"google.golang.org/protobuf/", "protobuf"},
	{"google.golang.org/grpc", "gRPC"},
	{"connectrpc.com/", "Connect"},
	{"go.opentelemetry.io/", "OpenTelemetry, Prometheus"},
	{"github.com/prometheus/", "OpenTelemetry, Prometheus"},
	{"github.com/goccy/go-yaml", "YAML"},
	{"github.com/spf13/", "cobra, pflag"},
	{"github.com/coreos/go-oidc", "OpenID Connect, JOSE"},
	{"github.com/go-jose/", "OpenID Connect, JOSE"},
	{"golang.org/x/oauth2", "OpenID Connect, JOSE"},
	{"net/http/pprof", "profiles"},
	{"runtime/pprof", "profiles"},
	{"internal/profile", "profiles"},
	{"crypto", "standard library: crypto"},
	{"vendor/golang.org/x/crypto", "standard library: crypto"},
	{"net", "standard library: net"},
	{"vendor/", "standard library: net"},
}

func group(path string) string {
	for _, g := range groups {
		if strings.HasPrefix(path, g.prefix) {
			return g.name
		}
	}
	if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
		return "other modules"
	}
	return "standard library: the rest, runtime"
}

// Table writes the parts as a table of Markdown. Each part's share of the tables is that of its code.
func (r Report) Table(w io.Writer) error {
	text := new(strings.Builder)
	fmt.Fprintf(text, "| part | code, MB | with its share of the tables, MB |\n| --- | --: | --: |\n")
	row := func(name string, code float64, all float64) {
		fmt.Fprintf(text, "| %s | %.2f | %.2f |\n", name, code/1e6, all/1e6)
	}
	for _, p := range r.Parts {
		row(p.Name, float64(p.Code), float64(p.Code)*(1+float64(r.Tables)/float64(r.Code)))
	}
	fmt.Fprintf(text, "| types, texts, descriptors, embedded files | – | %.2f |\n", float64(r.Constants)/1e6)
	row("all, with data", float64(r.Code), float64(r.Stripped))
	_, err := io.WriteString(w, text.String())
	return err
}
