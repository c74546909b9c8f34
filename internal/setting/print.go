package setting

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goccy/go-yaml"
)

// Print writes the settings in force in the form of a file, with where each is from. Secrets
// are not shown, only that they are set.
func (l *Loader) Print(w io.Writer) error {
	var b strings.Builder
	for i, section := range l.table {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "# %s\n", section.Title)
		for _, s := range section.Rows {
			line, err := s.line()
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "%s # %s\n", line, l.Origins[s.Key])
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s Row) line() (string, error) {
	texts := s.texts()
	if s.Secret {
		switch {
		case len(texts) == 0 || !s.pairs() && texts[0] == "":
			return "# " + s.Key + ": not set", nil
		case s.pairs():
			return "# " + s.Key + ": not shown, " + strings.Join(names(texts), ", "), nil
		}
		return "# " + s.Key + ": not shown", nil
	}
	text, err := yaml.MarshalWithOptions(s.plain(), yaml.Flow(true))
	return s.Key + ": " + strings.TrimSpace(string(text)), err
}

func (s Row) plain() any {
	switch v := s.Value.(type) {
	case *[]string:
		return append([]string{}, *v...)
	case *map[string]string:
		if *v == nil {
			return map[string]string{}
		}
		return *v
	case *time.Duration:
		return Short(*v)
	}
	return reflect.ValueOf(s.Value).Elem().Interface()
}

func names(texts []string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i], _, _ = strings.Cut(text, "=")
	}
	return out
}

// byDefault is the default for people: what is there before anything is loaded.
func (s Row) byDefault() string {
	if s.Secret {
		return ""
	}
	switch text := strings.Join(s.texts(), ","); text {
	case "false", "0", "0s":
		return ""
	default:
		return text
	}
}

// Help writes the table for a terminal. The values have to be the defaults still.
func (t Table) Help(w io.Writer, prefix string) {
	for _, section := range t {
		fmt.Fprintf(w, "%s:\n\n", section.Title)
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "FLAG\tENVIRONMENT\tDEFAULT\tMEANING")
		for _, s := range section.Rows {
			value, help := s.meaning()
			if value != "" {
				value = " " + value
			}
			fmt.Fprintf(table, "--%s%s\t%s\t%s\t%s\n", s.Flag(), value, s.Variable(prefix), s.byDefault(), help)
		}
		_ = table.Flush() // as Fprintf above: help that cannot be written is no concern
		fmt.Fprintln(w)
	}
}

// Markdown writes the table as a page's sections. The values have to be the defaults still.
func (t Table) Markdown(w io.Writer, prefix string) {
	for _, section := range t {
		fmt.Fprintf(w, "\n## %s\n\n| key in the file | flag | variable | default | live | what "+
			"|\n|---|---|---|---|---|---|\n", section.Title)
		for _, s := range section.Rows {
			value, help := s.meaning()
			if value != "" {
				value = " " + value
			}
			byDefault, live := s.byDefault(), ""
			if byDefault != "" {
				byDefault = "`" + byDefault + "`"
			}
			if s.Live {
				live = "yes"
			}
			if s.Secret {
				help += ". A secret: never shown"
			}
			fmt.Fprintf(w, "| `%s` | `--%s%s` | `%s` | %s | %s | %s |\n", s.Key, s.Flag(), value, s.Variable(prefix),
				byDefault, live, strings.ReplaceAll(help, "|", `\|`))
		}
	}
}
