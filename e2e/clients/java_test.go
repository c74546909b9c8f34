package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// javaLibrary returns the absolute path of a part of clients/java. The part is the result of `make client-java`; without
// it the test is skipped, except in that target itself.
func javaLibrary(t *testing.T, part string) string {
	t.Helper()
	harness.SkipWithoutCLI(t)
	path, err := filepath.Abs(filepath.Join("..", "..", "clients", "java", part))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); os.IsNotExist(err) && os.Getenv("CLIENT_JAVA") == "" {
		t.Skip("NOT RUN: make client-java builds the library")
	} else if err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// javac compiles an example without a warning, and returns its class path.
func javac(t *testing.T, example string) (path string) {
	t.Helper()
	dependencies := strings.TrimSpace(read(t, javaLibrary(t, "core/target/try/classpath")))
	classes := t.TempDir()
	jar := javaLibrary(t, "core/target/copilot-grpc-0.1.0.jar")
	path = strings.Join([]string{classes, jar, dependencies}, string(os.PathListSeparator))
	// The class files of other libraries name annotations, and their manifests files, that are not there.
	compile := exec.CommandContext(t.Context(), "javac", "-Xlint:all,-classfile,-path", "-Werror", "-proc:none",
		"-cp", path, "-d", classes, javaLibrary(t, filepath.Join("examples", example)))
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return path
}

// A newcomer's program in Java.
func TestJavaNewcomer(t *testing.T) {
	t.Parallel()
	path := javac(t, "Newcomer.java")
	testNewcomer(t, "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, "Newcomer")
}

// javaProject finds the files of the README's first program, and the command that runs it.
var javaProject = regexp.MustCompile("(?s)`pom.xml`:\n\n```xml\n(.*?)```.*?`(src/main/java/First.java)`:\n\n" +
	"<!-- run -->\n```java\n(.*?)```\n\n`(mvn [^`]*)`")

// The README's pom.xml and first program are a whole project.
func TestJavaReadmeProject(t *testing.T) {
	t.Parallel()
	repository := javaLibrary(t, "core/target/try/repository")
	parts := javaProject.FindStringSubmatch(read(t, javaLibrary(t, "README.md")))
	if parts == nil {
		t.Fatal("the README has no project")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"pom.xml": parts[1], parts[2]: parts[3]} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := append(strings.Fields(parts[4])[1:], "--batch-mode", "-Dstyle.color=never", "-Dmaven.repo.local="+repository)
	got := output(t, command(t, start(t, nil, weather()...), dir, "mvn", args...))
	if !strings.Contains(got, "It says: rain in Paris\n") { // between Maven's own control sequences
		t.Errorf("the README's project prints %q", got)
	}
}
