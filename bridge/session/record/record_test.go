package record

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const (
	start = `{"type":"session.start","data":{},"id":"1"}` + "\n"
	said  = `{"type":"user.message","data":{"content":"session.journal_link"},"id":"2"}` + "\n"
)

// linkTo is a link to a file.
func linkTo(file string) string {
	return fmt.Sprintf(`{"type":"session.journal_link","data":{"previousFile":%q,"sessionId":"s","version":1},"id":"l"}`+"\n",
		file)
}

func TestFiles(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files map[string]string
		want  []string // nil: none, or wrong
		wrong string
	}{
		"no record":   {files: map[string]string{"workspace.yaml": "x"}},
		"one file":    {files: map[string]string{File: start + said}, want: []string{File}},
		"a torn line": {files: map[string]string{File: start + `{"type":"session.journal_link","da`}, want: []string{File}},
		"a chain": {
			files: map[string]string{File: start + linkTo("events.2.jsonl") + said,
				"events.2.jsonl": linkTo("events.jsonl.1") + said, "events.jsonl.1": start, "events.9.jsonl": start},
			want: []string{File, "events.2.jsonl", "events.jsonl.1"},
		},
		"missing":        {files: map[string]string{File: linkTo("events.1.jsonl")}, wrong: "missing"},
		"to itself":      {files: map[string]string{File: linkTo(File)}, wrong: "not the name"},
		"in a circle":    {files: map[string]string{File: linkTo("1.jsonl"), "1.jsonl": linkTo("1.jsonl")}, wrong: "circle"},
		"outside":        {files: map[string]string{File: linkTo("../other/events.1.jsonl")}, wrong: "not the name"},
		"absolute":       {files: map[string]string{File: linkTo("/etc/1.jsonl")}, wrong: "not the name"},
		"another file":   {files: map[string]string{File: linkTo("session.db"), "session.db": ""}, wrong: "not the name"},
		"in a folder":    {files: map[string]string{File: linkTo("files/1.jsonl"), "files/1.jsonl": ""}, wrong: "not the name"},
		"not a file":     {files: map[string]string{File: linkTo("1.jsonl"), "1.jsonl/x": ""}, wrong: "not a regular file"},
		"not events":     {files: map[string]string{File: linkTo("1.jsonl.gz"), "1.jsonl.gz": "\x1f\x8b"}, wrong: "begin with"},
		"several links":  {files: map[string]string{File: linkTo("1.jsonl") + linkTo("2.jsonl")}, wrong: "several"},
		"no data":        {files: map[string]string{File: `{"type":"session.journal_link"}`}, wrong: "unknown form"},
		"a new version":  {files: map[string]string{File: strings.Replace(linkTo("1.jsonl"), ":1}", ":2}", 1)}, wrong: "version 2"},
		"another's":      {files: map[string]string{File: strings.Replace(linkTo("1.jsonl"), `"s"`, `"t"`, 1)}, wrong: "another"},
		"data of a text": {files: map[string]string{File: `{"type":"session.journal_link","data":"x"}`}, wrong: "unknown form"},
	} {
		folder := fstest.MapFS{}
		for file, text := range test.files {
			folder[file] = &fstest.MapFile{Data: []byte(text)}
		}
		got, err := Files(folder, "s")
		if !slices.Equal(got, test.want) || (test.wrong != "") != errors.Is(err, ErrUnknown) ||
			err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, test.want, test.wrong)
		}
	}
	linked := fstest.MapFS{File: {Data: []byte(linkTo("1.jsonl"))}, "1.jsonl": {Data: []byte("2.jsonl"), Mode: fs.ModeSymlink}}
	if got, err := Files(linked, "s"); !errors.Is(err, ErrUnknown) {
		t.Errorf("a symbolic link: %q, %v", got, err)
	}
}
