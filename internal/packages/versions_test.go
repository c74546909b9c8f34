package packages

import (
	"os"
	"regexp"
	"testing"
)

// TestVersionsAgree compares the versions of all that a release publishes, where each of its files says it. The notes of that
// version exist.
func TestVersionsAgree(t *testing.T) {
	t.Parallel()
	pom := `<artifactId>copilot-grpc-parent</artifactId>\s*<version>(.+)</version>`
	versions := map[string]string{}
	for file, patterns := range map[string][]string{
		"clients/python/pyproject.toml":               {`(?m)^version = "(.+)"$`, `"copilot-grpc-cli==(.+)"`},
		"clients/python/cli/pyproject.toml":           {`(?m)^version = "(.+)"$`, `"copilot-grpc-client==(.+)"`},
		"clients/python/src/copilot_grpc/__init__.py": {`(?m)^__version__ = "(.+)"$`},
		"clients/typescript/package.json":             {`(?m)^  "version": "(.+)",$`},
		"clients/rust/Cargo.toml":                     {`(?m)^version = "(.+)"$`, `copilot-grpc-messages = { version = "=([^"]+)"`},
		"clients/rust/messages/Cargo.toml":            {`(?m)^version = "(.+)"$`},
		"clients/java/pom.xml":                        {pom},
		"clients/java/stubs/pom.xml":                  {pom},
		"clients/java/core/pom.xml":                   {pom},
		"clients/java/cli/pom.xml":                    {pom},
		"deploy/helm/copilot-grpc/Chart.yaml":         {`(?m)^version: (.+)$`, `(?m)^appVersion: (.+)$`},
		"docs/deploy.md":                              {`(?m)^FROM ghcr.io/copilot-grpc/copilot-grpc:(.+)$`},
	} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, pattern := range patterns {
			found := regexp.MustCompile(pattern).FindSubmatch(text)
			if found == nil {
				t.Errorf("%s has no version %s", file, pattern)
				continue
			}
			versions[string(found[1])] = file
		}
	}
	if len(versions) != 1 {
		t.Errorf("several versions: %v", versions)
	}
	for version := range versions {
		if _, err := wheelVersion(version); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat("../../docs/releases/v" + version + ".md"); err != nil {
			t.Error(err)
		}
	}
}
