package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	conformancev1 "github.com/copilot-grpc/copilot-grpc/e2e/conformance/conformancev1"
)

// Case is a case with what it expects.
type Case struct {
	// Family is the name of the file, Name the whole name: FAMILY/NAME.
	Family, Name string
	About        string
	// Model is a script of the offline model, for a case of the real server.
	Model []byte
	// Wire is what the scripted server does.
	Wire []Call
	// Foreign makes the scripted server another program: "http1" answers in HTTP/1.1.
	Foreign string
	// Web says that the case also runs over the listener for browsers.
	Web bool
	// OwnServer gives the case a server of its own, which its controls may kill.
	OwnServer bool
	// Files are the contents of files, by name, in the working directory of a case of the real server.
	Files map[string]string
	// Asks are calls of the CLI by name, which the step `control: {name: ask NAME}` makes.
	Asks map[string]*Ask

	steps []step
	// observations are the expected ones, without those of the connection; nil expects none.
	observations any
	// connection is what a participant's connection went through.
	connection any
	// log are regular expressions of what the driver must have written to its standard error.
	log []*regexp.Regexp
}

type step struct {
	action *conformancev1.Step
	// expect is compared with the step's result, as JSON.
	expect map[string]any
}

// Real reports whether the case needs the real server.
func (c *Case) Real() bool { return c.Model != nil }

type caseFile struct {
	Cases []struct {
		Name, About string
		Model       any
		Wire        []any
		Foreign     string
		Web         bool
		OwnServer   bool `yaml:"own_server"`
		Files       map[string]string
		Asks        map[string]*Ask
		Steps       []map[string]any
		Expect      struct {
			Observations any
			Connection   any
			Log          []string
		}
	}
}

// Load reads the cases of a folder, in the order of the files.
func Load(folder string) ([]*Case, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []*Case
	names := map[string]bool{}
	for _, file := range files {
		cases, err := loadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, c := range cases {
			if names[c.Name] {
				return nil, fmt.Errorf("%s: two cases have the name %q", file, c.Name)
			}
			names[c.Name] = true
		}
		all = append(all, cases...)
	}
	return all, nil
}

func loadFile(file string) ([]*Case, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var f caseFile
	if err := yaml.UnmarshalWithOptions(text, &f, yaml.Strict()); err != nil {
		return nil, err
	}
	family := strings.TrimSuffix(filepath.Base(file), ".yaml")
	var cases []*Case
	for _, raw := range f.Cases {
		c := &Case{Family: family, Name: family + "/" + raw.Name, About: raw.About, Foreign: raw.Foreign, Web: raw.Web}
		c.Files, c.Asks, c.OwnServer = raw.Files, raw.Asks, raw.OwnServer
		c.observations, c.connection = raw.Expect.Observations, raw.Expect.Connection
		for _, pattern := range raw.Expect.Log {
			line, err := regexp.Compile(pattern)
			if err != nil {
				return nil, fmt.Errorf("case %s: log: %w", c.Name, err)
			}
			c.log = append(c.log, line)
		}
		if raw.Model != nil {
			if c.Model, err = yaml.Marshal(raw.Model); err != nil {
				return nil, fmt.Errorf("case %s: model: %w", c.Name, err)
			}
		}
		if c.Wire, err = parseWire(raw.Wire); err != nil {
			return nil, fmt.Errorf("case %s: wire: %w", c.Name, err)
		}
		if raw.Wire != nil { // clients are closed when the scripts have been played
			raw.Steps = append(raw.Steps, map[string]any{"control": map[string]any{"name": "finish"}})
		}
		if c.steps, err = parseSteps(raw.Steps); err != nil {
			return nil, fmt.Errorf("case %s: %w", c.Name, err)
		}
		if c.Real() == (raw.Wire != nil || raw.Foreign != "") {
			return nil, fmt.Errorf("case %s: it needs either a model or a wire script", c.Name)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

// parseSteps reads steps. A case that does not connect first gets a step that does.
func parseSteps(raw []map[string]any) ([]step, error) {
	var steps []step
	if len(raw) == 0 || raw[0]["connect"] == nil {
		raw = slices.Insert(slices.Clone(raw), 0, map[string]any{"connect": map[string]any{}})
	}
	for i, fields := range raw {
		st := step{action: &conformancev1.Step{}, expect: map[string]any{}}
		if expect, ok := fields["expect"]; ok {
			if st.expect, ok = expect.(map[string]any); !ok {
				return nil, fmt.Errorf("step %d: expect is not a mapping", i)
			}
			fields = maps.Clone(fields) // an anchor's mapping is shared
			delete(fields, "expect")
		}
		if err := fromYAML(fields, st.action); err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		if st.action.Action == nil {
			return nil, fmt.Errorf("step %d has no action", i)
		}
		setDefaults(st.action.ProtoReflect())
		steps = append(steps, st)
	}
	return steps, nil
}

// fromYAML converts a value of YAML to a message, as JSON.
func fromYAML(value any, m protoreflect.ProtoMessage) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(text, m)
}

// setDefaults gives fields named session and client their default names.
func setDefaults(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.Kind() == protoreflect.MessageKind && !f.IsList() && !f.IsMap() && m.Has(f):
			setDefaults(m.Get(f).Message())
		case (f.Name() == "session" || f.Name() == "client") && !m.Has(f):
			m.Set(f, protoreflect.ValueOfString(string(f.Name())))
		}
	}
}

// known is a row of the list of known failures. cli is a version of the CLI; empty for all.
type known struct {
	pattern, cli, language, reason string
}

// loadKnown reads the list of known failures: a pattern of cases, which may end with @ and a version of the CLI, a
// language, and the reason.
func loadKnown(file string) ([]known, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var rows []known
	for i, line := range bytes.Split(text, []byte("\n")) {
		row, _, _ := strings.Cut(string(line), "#")
		fields := strings.Fields(row)
		if len(fields) == 0 {
			continue
		}
		if len(fields) < 3 {
			return nil, fmt.Errorf("%s:%d: want a pattern, a language and a reason", file, i+1)
		}
		pattern, cli, _ := strings.Cut(fields[0], "@")
		rows = append(rows, known{pattern, cli, fields[1], strings.Join(fields[2:], " ")})
	}
	return rows, nil
}

// matches reports whether a row is for a case, a language and a CLI.
func (k known) matches(name, language, cli string) bool {
	ok, err := filepath.Match(k.pattern, name)
	return err == nil && ok && (k.language == language || k.language == "*") && (k.cli == cli || k.cli == "")
}
