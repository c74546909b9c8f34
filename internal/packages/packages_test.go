package packages

import (
	"os"
	"regexp"
	"testing"
)

// TestLibrariesHaveOtherNames compares the names in one registry: a package of the program and a library cannot share one.
func TestLibrariesHaveOtherNames(t *testing.T) {
	t.Parallel()
	for file, name := range map[string]*regexp.Regexp{
		"clients/python/pyproject.toml":     regexp.MustCompile(`(?m)^name = "(.+)"$`),
		"clients/python/cli/pyproject.toml": regexp.MustCompile(`(?m)^name = "(.+)"$`),
		"clients/typescript/package.json":   regexp.MustCompile(`(?m)^  "name": "(.+)",$`),
	} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := name.FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no name", file)
		}
		if library := string(found[1]); library == Name {
			t.Errorf("%s has the name of the program, %s", file, library)
		}
	}
}
