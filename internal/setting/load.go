package setting

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Origin says where a value is from.
type Origin struct {
	// Kind is one of those below.
	Kind Kind
	// Name is that of the flag or the variable, or the file with its line.
	Name string
}

// Kind is a kind of origin.
type Kind uint8

// The kinds, the first of which wins.
const (
	FromDefault Kind = iota
	FromFile
	FromEnvironment
	FromFlag
)

func (o Origin) String() string {
	switch o.Kind {
	case FromFlag:
		return "flag " + o.Name
	case FromEnvironment:
		return "environment variable " + o.Name
	case FromFile:
		return o.Name
	}
	return "default"
}

// Wrong returns the error about a value of this origin, of the setting with the key. A flag and a variable name the
// setting already.
func (o Origin) Wrong(key string, err error) error {
	if o.Kind == FromFlag || o.Kind == FromEnvironment {
		return fmt.Errorf("%s: %w", o, err)
	}
	return fmt.Errorf("%s: %s: %w", o, key, err)
}

// Loader reads a table.
type Loader struct {
	table  Table
	prefix string
	flags  map[string]*given
	// Origins say where the values are from, by key, once they are loaded.
	Origins map[string]Origin
}

// given is what the command line says of one setting.
type given struct {
	setting Row
	texts   []string
}

// NewLoader returns a loader of the table. prefix begins the names of all environment
// variables.
func NewLoader(table Table, prefix string) *Loader {
	l := &Loader{table: table, prefix: prefix, flags: map[string]*given{}, Origins: map[string]Origin{}}
	for _, s := range table.All() {
		l.flags[s.Key] = &given{setting: s}
	}
	return l
}

// AddFlags adds the table's flags. They only note what the command line says.
func (l *Loader) AddFlags(f *pflag.FlagSet) {
	for _, s := range l.table.All() {
		added := f.VarPF(l.flags[s.Key], s.Flag(), "", s.Help)
		if _, ok := s.Value.(*bool); ok {
			added.NoOptDefVal = "true" // it goes without a value
		}
	}
}

// Load sets the values: from the flags, which have been parsed, the environment, and the text of the file of that name;
// nil is no file. The error joins all faults. The other settings are set nevertheless, so that the caller can check them.
func (l *Loader) Load(getenv func(string) string, path string, text []byte) error {
	file, err := parseFile(l.table, path, text)
	faults := []error{err}
	for _, s := range l.table.All() {
		texts, origin := l.source(s, getenv, file)
		l.Origins[s.Key] = origin
		if origin.Kind == FromDefault {
			continue
		}
		if err := s.parse(texts); err != nil {
			faults = append(faults, origin.Wrong(s.Key, err))
		}
	}
	return errors.Join(faults...)
}

// source returns the texts of a setting from the first source that sets it, and that source.
func (l *Loader) source(s Row, getenv func(string) string, file map[string]entry) ([]string, Origin) {
	if g := l.flags[s.Key]; g.texts != nil {
		return g.texts, Origin{FromFlag, "--" + s.Flag()}
	}
	if name := s.Variable(l.prefix); getenv(name) != "" {
		texts := []string{getenv(name)}
		if s.several() {
			texts = s.fields(texts[0])
		}
		return texts, Origin{FromEnvironment, name}
	}
	if e, ok := file[s.Key]; ok {
		return e.texts, Origin{FromFile, e.where}
	}
	return nil, Origin{}
}

func (g *given) Type() string {
	if _, ok := g.setting.Value.(*bool); ok {
		return "bool"
	}
	return g.setting.kind()
}

func (g *given) String() string {
	if g.setting.Value == nil || g.setting.Secret {
		return ""
	}
	return strings.Join(g.setting.texts(), ",")
}

func (g *given) Set(text string) error {
	if !g.setting.several() {
		g.texts = []string{text} // the last one counts
		return nil
	}
	texts := []string{text}
	if g.setting.list() {
		texts = g.setting.fields(text)
	}
	g.texts = append(append([]string{}, g.texts...), texts...)
	return nil
}
