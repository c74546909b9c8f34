package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
)

// flags are a command's flags, each of which can also be set in the environment.
type flags struct {
	*pflag.FlagSet
	usage string
	// given are the settings of the command line.
	given        map[string]bool
	interspersed bool
	// table are the settings that the table reads.
	table setting.Table
}

// isSet reports whether the command line or the environment sets a flag.
func (f *flags) isSet(p *program, name string) bool {
	return f.given[name] || p.getenv(variable(name)) != ""
}

func newFlags(name, args, usage string) *flags {
	f := &flags{FlagSet: pflag.NewFlagSet(name, pflag.ContinueOnError)}
	f.SetInterspersed(false) // what follows the first argument is not ours
	f.usage = fmt.Sprintf("Usage: copilot-grpc %s %s\n\n%s\n", name, args, usage)
	f.SetOutput(io.Discard)
	f.FlagSet.Usage = func() {}
	return f
}

func (f *flags) SetInterspersed(may bool) {
	f.interspersed = may
	f.FlagSet.SetInterspersed(may)
}

// want checks how many arguments there are by their names.
func want(args []string, names ...string) error {
	switch {
	case len(args) < len(names):
		return usageError{fmt.Errorf("want %s", strings.Join(names[len(args):], " "))}
	case len(args) > len(names):
		return usageError{fmt.Errorf("unexpected argument %q", args[len(names)])}
	}
	return nil
}

func variable(flag string) string {
	return app.EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// variableKey is the annotation of a flag whose environment variable is named after something else, since a flag of
// another command has the same name and another meaning.
const variableKey = "variable"

func variableOf(fl *pflag.Flag) string {
	if other := fl.Annotations[variableKey]; len(other) > 0 {
		return variable(other[0])
	}
	return variable(fl.Name)
}

// otherVariables are variables with our prefix that are not named after a flag.
var otherVariables = []string{app.EnvPrefix + "BINARY", shimMarker, process.MarkerEnv}

// foreignVariables are the beginnings of names that follow our prefix in variables of others: Kubernetes sets them in
// each pod beside a Service that is called copilot-grpc; tests have theirs.
var foreignVariables = []string{"SERVICE_", "PORT", "TEST_"}

// unknownVariables returns the names of variables with our prefix that no command reads, each with the name that may
// have been meant, or "".
func unknownVariables(p *program) map[string]string {
	if !slices.ContainsFunc(p.environ(), func(entry string) bool { return strings.HasPrefix(entry, app.EnvPrefix) }) {
		return nil
	}
	var known []string // without the prefix, which says nothing about what is near
	for _, name := range otherVariables {
		known = append(known, strings.TrimPrefix(name, app.EnvPrefix))
	}
	eachCommand(commands(), "", func(c command, path string) {
		f, _ := c.parser(p, path)
		f.VisitAll(func(f *pflag.Flag) { known = append(known, strings.TrimPrefix(variableOf(f), app.EnvPrefix)) })
	})
	unknown := map[string]string{}
	for _, entry := range p.environ() {
		variable, _, _ := strings.Cut(entry, "=")
		name, ours := strings.CutPrefix(variable, app.EnvPrefix)
		foreign := slices.ContainsFunc(foreignVariables, func(p string) bool { return strings.HasPrefix(name, p) })
		if !ours || foreign || slices.Contains(known, name) {
			continue
		}
		unknown[variable] = ""
		if near := setting.Nearest(name, known); near != "" {
			unknown[variable] = app.EnvPrefix + near
		}
	}
	return unknown
}

func warnOfVariables(p *program) {
	unknown := unknownVariables(p)
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		text := "warning: no setting reads the variable " + name
		if near := unknown[name]; near != "" {
			text += "; did you mean " + near + "?"
		}
		fmt.Fprintln(p.stderr, text)
	}
}

// eachCommand calls f with each command that can be run, and its path.
func eachCommand(list []command, prefix string, f func(c command, path string)) {
	for _, c := range list {
		if c.commands != nil {
			eachCommand(c.commands, prefix+c.name+" ", f)
			continue
		}
		f(c, prefix+c.name)
	}
}

// parse reads the command line, and the environment for what that does not set.
func (f *flags) parse(p *program, args []string) error {
	err := f.Parse(f.long(args))
	if errors.Is(err, pflag.ErrHelp) {
		return p.printHelp(f.print)
	}
	if err != nil {
		return usageError{f.suggest(err)}
	}
	return f.readEnvironment(p)
}

// readEnvironment sets the flags that the command line has not set.
func (f *flags) readEnvironment(p *program) (err error) {
	f.given = map[string]bool{}
	f.VisitAll(func(fl *pflag.Flag) {
		f.given[fl.Name] = fl.Changed
		value := p.getenv(variableOf(fl))
		if fl.Changed || value == "" || err != nil || f.tabled(fl.Name) {
			return
		}
		if bad := f.Set(fl.Name, value); bad != nil {
			err = usageError{wrongValue("environment variable "+variableOf(fl), bad)}
		}
	})
	return err
}

// long gives flags with one dash a second: programs and people write both. Flags of one letter stay.
func (f *flags) long(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		text := strings.TrimLeft(args[i], "-")
		if text == args[i] || text == "" {
			if !f.interspersed || args[i] == "--" {
				return append(out, args[i:]...)
			}
			out = append(out, args[i])
			continue
		}
		name, _, valued := strings.Cut(text, "=")
		fl := f.Lookup(name)
		switch short := f.ShorthandLookup(text[:1]); {
		case name == "h":
			text = "--help"
		case fl == nil && short != nil && !strings.HasPrefix(args[i], "--"):
			fl, valued, text = short, len(text) > 1, args[i]
		default:
			text = "--" + text
		}
		out = append(out, text)
		if fl != nil && !valued && fl.NoOptDefVal == "" && i+1 < len(args) {
			i++
			out = append(out, args[i])
		}
	}
	return out
}

// suggest adds what a flag that does not exist may have been, and tells a bad value once.
func (f *flags) suggest(err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return wrongValue("flag --"+bad.GetFlag().Name, bad)
	}
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	var names []string
	f.VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
	if near := setting.Nearest(missing.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	if f.interspersed {
		return fmt.Errorf("%w; an argument that begins with - follows --", err)
	}
	return err
}

// wrongValue is the error about the value of a flag or a variable. It has the value once.
func wrongValue(of string, err error) error {
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	switch {
	case !ok:
		return fmt.Errorf("%s: %w", of, err)
	case strings.Contains(bad.Unwrap().Error(), strconv.Quote(bad.GetValue())):
		return fmt.Errorf("%s: %w", of, bad.Unwrap())
	}
	return fmt.Errorf("%s: invalid value %q: %w", of, bad.GetValue(), bad.Unwrap())
}

func (f *flags) tabled(name string) bool {
	_, ok := f.table.Lookup(strings.ReplaceAll(name, "-", "_"))
	return ok
}

// parseOnly is parse for commands that take nothing but flags.
func (f *flags) parseOnly(p *program, args []string) error {
	if err := f.parse(p, args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", f.Arg(0))}
	}
	return nil
}

func (f *flags) print(w io.Writer) {
	fmt.Fprint(w, f.usage)
	if !f.HasFlags() {
		return
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FLAG\tENVIRONMENT\tDEFAULT\tMEANING")
	f.VisitAll(func(fl *pflag.Flag) {
		if f.tabled(fl.Name) {
			return
		}
		value, meaning := pflag.UnquoteUsage(fl)
		if value != "" {
			value = " " + value
		}
		if fl.Shorthand != "" {
			value += ", -" + fl.Shorthand
		}
		fmt.Fprintf(table, "--%s%s\t%s\t%s\t%s\n", fl.Name, value, variableOf(fl), fl.DefValue, meaning)
	})
	table.Flush()
	if f.table != nil {
		fmt.Fprintln(w)
		f.table.Help(w, app.EnvPrefix)
	}
}

// list is a flag that may occur several times, or once with commas.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (*list) Type() string { return "list" }

func (l *list) Set(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			*l = append(*l, one)
		}
	}
	return nil
}

// defaultSocket is the default socket for people.
func defaultSocket() string {
	path, err := app.DefaultSocket()
	if err != nil {
		return "none here"
	}
	return "unix:" + path
}

// labels are flags of the form KEY=VALUE.
type labels struct{ set map[string]string }

func (l *labels) String() string {
	var all []string
	for key, value := range l.set {
		all = append(all, key+"="+value)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

func (*labels) Type() string { return "labels" }

// Set implements pflag.Value. A value may have commas.
func (l *labels) Set(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return errors.New("want KEY=VALUE")
	}
	if l.set == nil {
		l.set = map[string]string{}
	}
	l.set[key] = value
	return nil
}

// choices is a flag with some of several values; it may occur several times, or once with commas.
type choices struct{ chosen, of []string }

func (c *choices) String() string { return strings.Join(c.chosen, ",") }

func (*choices) Type() string { return "choices" }

func (c *choices) Set(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		if !slices.Contains(c.of, one) {
			return fmt.Errorf("want some of %s", strings.Join(c.of, ", "))
		}
		c.chosen = append(c.chosen, one)
	}
	return nil
}
