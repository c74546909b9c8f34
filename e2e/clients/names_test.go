package clients

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of names in docs/clients.md is true: each library declares them.
func TestNamesOfTheLibraries(t *testing.T) {
	t.Parallel()
	columns := []struct{ language, folder, declares string }{
		{"Go", "go", `(?m)^(func (\(\w+ \*?\w+\) )?%s\(|type %[1]s |\t%[1]s +[*\w])`},
		{"TypeScript", "typescript/src", `(?m)(^export (interface|class|type) %s\b|^  (get |async |\*)*%[1]s[(<]|readonly %[1]s: )`},
		{"Python", "python/src/copilot_grpc", `(?m)^(class %s\b|    (async )?def %[1]s\(|    %[1]s: )`},
		{"Rust", "rust/src", `\bpub (struct %s\b|(async )?fn %[1]s\b|%[1]s: )`},
		{"Java", "java/core/src/main/java", `(?m)^(public (final class|record) %s\b|\tpublic .*\b%[1]s\(|public record .*\b%[1]s\)|\t\tStatus.*\b%[1]s,)`},
	}
	_, table, found := strings.Cut(read(t, "../../docs/clients.md"), "\n| concept | Go | TypeScript | Python | Rust | Java |\n")
	if !found {
		t.Fatal("docs/clients.md has no table of names")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")[1:]
	names := regexp.MustCompile("`(\\w+)(\\(\\))?`")
	for i, column := range columns {
		sources := sourcesOf(t, filepath.Join("../../clients", column.folder))
		for _, row := range rows {
			cells := strings.Split(strings.Trim(row, "|"), "|")
			found := names.FindAllStringSubmatch(cells[i+1], -1)
			if len(found) == 0 {
				t.Errorf("%s has no name for %q", column.language, strings.TrimSpace(cells[0]))
			}
			for _, name := range found {
				if !regexp.MustCompile(fmt.Sprintf(column.declares, name[1])).MatchString(sources) {
					t.Errorf("%s declares no %s", column.language, name[1])
				}
			}
		}
	}
	if len(rows) < 12 {
		t.Errorf("the table has %d rows", len(rows))
	}
}

// sourcesOf is the text of the files below a folder, without tests and generated files.
func sourcesOf(t *testing.T, folder string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.Contains(path, "_test") || strings.Contains(path, "_pb2") {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		all.WriteByte('\n')
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
