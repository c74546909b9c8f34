// Package setting reads what a program can be told by flags, by its environment and by a
// file, all three from one table. A row of the table is a setting: its name, where its value
// goes, and what it means; the flag, the variable, the file's key, the help and the page of
// the documentation are made of it.
//
// The first of these that says something decides, as a whole: a flag, a variable, the file,
// the default. Two of them are never merged, lists included.
package setting

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Row is a row of a table.
type Row struct {
	// Key is the setting's name in files, such as "max_prompt_bytes". The flag is
	// --max-prompt-bytes, the variable has the prefix and capitals.
	Key string
	// Value points to where the value goes, which has the default: a *string, *bool, *int,
	// *int64, *time.Duration, *[]string or *map[string]string.
	Value any
	// Secret says that the value is never shown, Live that it can change while the program runs.
	Secret, Live bool
	// Help says what it is. A word in back quotes names the value, as in package pflag.
	Help string
}

// Section is a part of a table with a title.
type Section struct {
	Title string
	Rows  []Row
}

// Table is all settings there are.
type Table []Section

func (t Table) All() []Row {
	var all []Row
	for _, s := range t {
		all = append(all, s.Rows...)
	}
	return all
}

// Lookup returns the setting of a key.
func (t Table) Lookup(key string) (Row, bool) {
	for _, s := range t.All() {
		if s.Key == key {
			return s, true
		}
	}
	return Row{}, false
}

func (s Row) Flag() string { return strings.ReplaceAll(s.Key, "_", "-") }

// Variable is the name of the setting's environment variable.
func (s Row) Variable(prefix string) string { return prefix + strings.ToUpper(s.Key) }

// meaning splits Help into the name of the value and the rest.
func (s Row) meaning() (value, help string) {
	before, rest, ok := strings.Cut(s.Help, "`")
	if word, after, closed := strings.Cut(rest, "`"); ok && closed {
		return word, before + word + after
	}
	return s.kind(), s.Help
}

// kind is what a value is called that Help does not name.
func (s Row) kind() string {
	switch s.Value.(type) {
	case *bool:
		return ""
	case *int, *int64:
		return "number"
	case *time.Duration:
		return "duration"
	case *[]string:
		return "list"
	}
	return "text"
}

// parse sets the value to what the texts say: of a list they are the entries, of a map
// NAME=VALUE each, of everything else there is one.
func (s Row) parse(texts []string) error {
	if len(texts) != 1 && !s.several() {
		return fmt.Errorf("it has %d values, not 1", len(texts))
	}
	var err error
	switch v := s.Value.(type) {
	case *[]string:
		*v = slices.Clone(texts)
		return nil
	case *map[string]string:
		*v, err = pairs(texts)
		return err
	case *string:
		*v = texts[0]
	case *bool:
		*v, err = strconv.ParseBool(texts[0])
	case *int:
		*v, err = strconv.Atoi(texts[0])
	case *int64:
		*v, err = strconv.ParseInt(texts[0], 10, 64)
	case *time.Duration:
		*v, err = time.ParseDuration(texts[0])
	default:
		return fmt.Errorf("a %T cannot be set", s.Value)
	}
	if err != nil {
		return fmt.Errorf("%s is not %s", s.shown(texts[0]), s.wanted())
	}
	return nil
}

// shown is a text for an error.
func (s Row) shown(text string) string {
	if s.Secret {
		return "the value"
	}
	return strconv.Quote(text)
}

// wanted is what a text should have been.
func (s Row) wanted() string {
	switch s.Value.(type) {
	case *bool:
		return "true or false"
	case *time.Duration:
		return `a duration such as "90s" or "5m"`
	}
	return "a number"
}

// several reports whether the setting has any number of values.
func (s Row) several() bool { return s.list() || s.pairs() }

func (s Row) list() bool  { _, ok := s.Value.(*[]string); return ok }
func (s Row) pairs() bool { _, ok := s.Value.(*map[string]string); return ok }

// pairs reads NAME=VALUE texts. Errors do not quote the text: values may be secrets.
func pairs(texts []string) (map[string]string, error) {
	out := make(map[string]string, len(texts))
	for i, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("entry %d is not of the form NAME=VALUE", i+1)
		}
		out[name] = value
	}
	return out, nil
}

// fields takes a text apart that stands for a whole list: commas separate entries of lists,
// line ends those of maps, whose values may have commas.
func (s Row) fields(text string) []string {
	separator := ","
	if s.pairs() {
		separator = "\n"
	}
	var out []string
	for one := range strings.SplitSeq(text, separator) {
		if one = strings.TrimSpace(one); one != "" {
			out = append(out, one)
		}
	}
	return out
}

// texts is the inverse of parse.
func (s Row) texts() []string {
	switch v := s.Value.(type) {
	case *[]string:
		return slices.Clone(*v)
	case *map[string]string:
		var out []string
		for _, name := range slices.Sorted(maps.Keys(*v)) {
			out = append(out, name+"="+(*v)[name])
		}
		return out
	case *string:
		return []string{*v}
	case *bool:
		return []string{strconv.FormatBool(*v)}
	case *int:
		return []string{strconv.Itoa(*v)}
	case *int64:
		return []string{strconv.FormatInt(*v, 10)}
	case *time.Duration:
		return []string{Short(*v)}
	}
	return nil
}

// Short writes a duration without the zeros that time.Duration has at its end.
func Short(d time.Duration) string {
	text := d.String()
	for _, zero := range []struct{ long, short string }{{"m0s", "m"}, {"h0m", "h"}} {
		if strings.HasSuffix(text, zero.long) {
			text = strings.TrimSuffix(text, zero.long) + zero.short
		}
	}
	return text
}

// Same reports whether the setting and that of another table with the same key have the same
// value.
func (s Row) Same(other Row) bool { return slices.Equal(s.texts(), other.texts()) }

// Copy gives the setting the value of that of another table.
func (s Row) Copy(from Row) {
	// Texts of a setting of the same type always parse.
	_ = s.parse(from.texts())
}
