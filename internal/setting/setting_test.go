package setting

import (
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// values are what a table of each type sets.
type values struct {
	text, token string
	yes         bool
	number      int
	bytes       int64
	wait        time.Duration
	list        []string
	env         map[string]string
}

func (v *values) table() Table {
	return Table{
		{Title: "First", Rows: []Row{
			{Key: "text", Value: &v.text, Help: "a `word`"},
			{Key: "token", Value: &v.token, Secret: true, Help: "a `token`"},
			{Key: "yes", Value: &v.yes, Help: "whether | not"},
			{Key: "list", Value: &v.list, Help: "some"},
		}},
		{Title: "Second", Rows: []Row{
			{Key: "number", Value: &v.number, Live: true, Help: "how many"},
			{Key: "bytes", Value: &v.bytes, Help: "how much"},
			{Key: "max_wait", Value: &v.wait, Help: "how long"},
			{Key: "env", Value: &v.env, Secret: true, Help: "variables"},
		}},
	}
}

// load loads a table, and returns the loader.
func load(v *values, args, env []string, file string) (*Loader, error) {
	l := NewLoader(v.table(), "X_")
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	l.AddFlags(f)
	if err := f.Parse(args); err != nil {
		return l, err
	}
	getenv := func(name string) string {
		for _, one := range env {
			if value, ok := strings.CutPrefix(one, name+"="); ok {
				return value
			}
		}
		return ""
	}
	var text []byte
	if file != "" {
		text = []byte(file)
	}
	return l, l.Load(getenv, "c.yaml", text)
}

const whole = `# all of it
text: "from the file"
token: secret-1
yes: true
list: [a, "b,c"]
number: 3
bytes: 4
max_wait: 90s
env:
  A: b=c
  B: "1,2"
`

// Every type comes out of every source as it went in.
func TestSources(t *testing.T) {
	t.Parallel()
	want := values{"from the file", "secret-1", true, 3, 4, 90 * time.Second, []string{"a", "b,c"},
		map[string]string{"A": "b=c", "B": "1,2"}}
	noComma := want
	noComma.list = []string{"a", "b"}
	for name, tc := range map[string]struct {
		args, env []string
		file      string
		want      values
	}{
		"file": {nil, nil, whole, want},
		"environment": {nil, []string{
			"X_TEXT=from the file", "X_TOKEN=secret-1", "X_YES=true", "X_LIST=a, b", "X_NUMBER=3", "X_BYTES=4",
			"X_MAX_WAIT=90s", "X_ENV=A=b=c\nB=1,2",
		}, "", noComma},
		"flags": {[]string{
			"--text", "from the file", "--token=secret-1", "--yes", "--list", "a", "--list", "b", "--number", "3",
			"--bytes", "4", "--max-wait", "90s", "--env", "A=b=c", "--env", "B=1,2",
		}, nil, "", noComma},
		"a file with a list as text": {nil, nil, strings.Replace(whole, `[a, "b,c"]`, "a, b", 1), noComma},
		"an empty file":              {nil, nil, "# nothing\n", values{}},
	} {
		var got values
		_, err := load(&got, tc.args, tc.env, tc.file)
		if err != nil || !same(got, tc.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func same(a, b values) bool {
	lists, envs := slices.Equal(a.list, b.list), maps.Equal(a.env, b.env)
	return lists && envs && a.text == b.text && a.token == b.token && a.yes == b.yes && a.number == b.number &&
		a.bytes == b.bytes && a.wait == b.wait
}

// A flag wins over the environment, that over the file, that over the default; lists whole.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	v := values{text: "default", number: 1, bytes: 1, list: []string{"default"}, wait: time.Minute}
	l, err := load(&v, []string{"--list", "flag", "--text="},
		[]string{"X_LIST=variable", "X_NUMBER=2", "X_TEXT=variable"}, "list: [file, two]\nnumber: 3\nbytes: 4\n")
	if err != nil {
		t.Fatal(err)
	}
	if v.text != "" || v.number != 2 || v.bytes != 4 || !slices.Equal(v.list, []string{"flag"}) ||
		v.wait != time.Minute {
		t.Errorf("%+v", v)
	}
	for key, want := range map[string]string{
		"list": "flag --list", "number": "environment variable X_NUMBER", "bytes": "c.yaml:3", "max_wait": "default",
	} {
		if got := l.Origins[key].String(); got != want {
			t.Errorf("%s is from %q, want %q", key, got, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args, env []string
		file      string
		want      []string
	}{
		"unknown key": {nil, nil, "max_wiat: 1s\n",
			[]string{"c.yaml:1", `"max_wiat"`, `did you mean "max_wait"?`}},
		"a flag's name":   {nil, nil, "max-wait: 1s\n", []string{`did you mean "max_wait"?`}},
		"nothing like it": {nil, nil, "colour: red\n", []string{`no setting "colour"`}},
		"two at once":     {nil, nil, "colour: red\nnumbr: 1\n", []string{"c.yaml:1", "c.yaml:2"}},
		"twice":           {nil, nil, "number: 1\nbytes: 1\nnumber: 2\n", []string{"number"}},
		"no number": {nil, nil, "text: a\nnumber: many\n",
			[]string{"c.yaml:2: number: ", `"many"`, "a number"}},
		"no duration":      {nil, nil, "max_wait: 5\n", []string{"c.yaml:1: max_wait", `"5"`, `"90s"`}},
		"no value":         {nil, nil, "text:\n", []string{"text: it has no value"}},
		"a list for one":   {nil, nil, "text: [a]\n", []string{"text: it takes no list"}},
		"names for one":    {nil, nil, "text: {a: b}\n", []string{"text: it takes no names"}},
		"one for names":    {nil, nil, "env: A=b\n", []string{"env: it takes names"}},
		"a list in a list": {nil, nil, "list: [[a]]\n", []string{"list: it takes a plain value"}},
		"no settings":      {nil, nil, "- a\n", []string{"c.yaml: it is not"}},
		"no YAML":          {nil, nil, "number: 1\ntext: [\n", []string{"c.yaml:2: ", "not found"}},
		"two files in one": {nil, nil, "text: a\n---\ntext: b\n", []string{"c.yaml: it is not"}},
		"a variable": {nil, []string{"X_YES=perhaps"}, "",
			[]string{`environment variable X_YES: "perhaps" is`, "true or false"}},
		"variables, no name":    {nil, []string{"X_ENV==secret-2"}, "", []string{"X_ENV: entry 1"}},
		"a flag":                {[]string{"--number", "x"}, nil, "", []string{"number", `"x"`}},
		"a flag with no name":   {[]string{"--env", "secret-2"}, nil, "", []string{"env", "entry 1"}},
		"a duration for a flag": {[]string{"--max-wait", "1"}, nil, "", []string{"max-wait", `"90s"`}},
	} {
		var v values
		_, err := load(&v, tc.args, tc.env, tc.file)
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", name, err, want)
			}
		}
	}
}

// Printed settings are a file that gives the same settings, but for secrets.
func TestPrint(t *testing.T) {
	t.Parallel()
	var v values
	l, err := load(&v, []string{"--number", "7"}, []string{"X_MAX_WAIT=2h"}, whole)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := l.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"number: 7 # flag --number\n", "max_wait: 2h # environment variable X_MAX_WAIT\n",
		"# token: not shown # c.yaml:3\n",
		"# env: not shown, A, B # c.yaml:9\n", "# First\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	for _, secret := range []string{"secret-1", "b=c", "1,2"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%q is in\n%s", secret, out.String())
		}
	}
	var again values
	if _, err := load(&again, nil, nil, out.String()); err != nil {
		t.Fatalf("%v in\n%s", err, out.String())
	}
	again.token, again.env = v.token, v.env
	if !same(again, v) {
		t.Errorf("%+v became %+v", v, again)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	v := values{number: 3, wait: 5 * time.Minute, token: "secret-3"}
	var help, page strings.Builder
	v.table().Help(&help, "X_")
	v.table().Markdown(&page, "X_")
	for _, want := range []string{"--text word", "X_MAX_WAIT", "5m", "Second:"} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("%q is missing in the help\n%s", want, help.String())
		}
	}
	for _, want := range []string{
		"| `number` | `--number number` | `X_NUMBER` | `3` | yes | how many |\n",
		"| `yes` | `--yes` | `X_YES` |  |  | whether \\| not |\n",
		"| `token` | `--token token` | `X_TOKEN` |  |  | a token. A secret: never shown |\n",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is missing in the page\n%s", want, page.String())
		}
	}
	if strings.Contains(help.String()+page.String(), "secret-3") {
		t.Error("a secret is shown")
	}
}

func TestCopy(t *testing.T) {
	t.Parallel()
	var a, b values
	if _, err := load(&a, nil, nil, whole); err != nil {
		t.Fatal(err)
	}
	for i, row := range b.table().All() {
		from := a.table().All()[i]
		if row.Same(from) {
			t.Errorf("%s is the same before", row.Key)
		}
		row.Copy(from)
		if !row.Same(from) {
			t.Errorf("%s differs after", row.Key)
		}
	}
	if !same(a, b) {
		t.Errorf("%+v became %+v", a, b)
	}
	b.env["A"] = "changed"
	if a.env["A"] == "changed" {
		t.Error("a copy shares its map")
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"listen", "log_level", "log_format"}
	for word, want := range map[string]string{"lisetn": "listen", "loglevel": "log_level", "log_fromat": "log_format",
		"policy": "", "": ""} {
		if got := Nearest(word, words); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestMisspelt(t *testing.T) {
	t.Parallel()
	words := []string{"assistant.message", "assistant.message_delta"}
	for word, want := range map[string]string{"asistant.mesage": "assistant.message", "assistant.message_dleta": "assistant.message_delta", "assistant.message_end": "", "": ""} {
		if got := Misspelt(word, words); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{5 * time.Minute: "5m", time.Hour: "1h", 90 * time.Second: "1m30s",
		0: "0s", 61 * time.Minute: "1h1m", 10 * time.Second: "10s"} {
		if got := Short(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
		if back, err := time.ParseDuration(Short(d)); err != nil || back != d {
			t.Errorf("%v is read back as %v, %v", d, back, err)
		}
	}
}
