package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	"github.com/copilot-grpc/copilot-grpc/internal/packages"
)

// The packages for npm and PyPI are installed without a network into empty folders. The server that they start answers a
// prompt, and ends in order when its launcher is asked to.
func TestPackages(t *testing.T) {
	t.Parallel()
	built := buildPackages(t)
	for name, install := range map[string]func(t *testing.T, built string) (program string){
		"npm": installWithNPM, "pip": installWithPip,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := install(t, built)
			if out, err := exec.Command(program, "no-such-command").CombinedOutput(); err == nil {
				t.Errorf("a command that does not exist succeeds: %s", out)
			}
			d := harness.NewDaemonOf(harness.NewScripted(t), program, "--offline-model", "default")
			s, err := d.Client.CreateSession(d.Ctx, copilot.SessionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if out, err := s.SendAndWait(d.Ctx, "Hello"); err != nil || out.Err() != nil ||
				!strings.HasPrefix(out.Text(), "You said: Hello") {
				t.Errorf("the answer is %v, %v", out, err)
			}
			d.Stop(syscall.SIGTERM)
			if code := d.Cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("the launcher ends with %d", code)
			}
			if _, err := os.Stat(filepath.Join(d.Root, "s")); err == nil {
				t.Error("the server did not end in order: its socket is there")
			}
		})
	}
}

// buildPackages writes the packages of this platform to a folder.
func buildPackages(t *testing.T) string {
	t.Helper()
	built := t.TempDir()
	platform, err := packages.Find(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		t.Skip("NOT RUN: ", err)
	}
	path, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	save := func(name string, content []byte, err error) {
		if err == nil {
			err = os.WriteFile(filepath.Join(built, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	texts := packages.Texts{Readme: []byte("# read me\n"), License: []byte("license\n")}
	save(packages.NPM("1.2.3-rc.4", texts))
	save(packages.NPMProgram(platform, "1.2.3-rc.4", program, texts))
	save(packages.Wheel(platform, "1.2.3-rc.4", program, texts))
	return built
}

func installWithNPM(t *testing.T, built string) string {
	t.Helper()
	dir := t.TempDir()
	archives, err := filepath.Glob(filepath.Join(built, "*.tgz"))
	if err != nil || len(archives) != 2 {
		t.Fatalf("the packages are %q, %v", archives, err)
	}
	// Those of other platforms are missing, as they are for a user whose platform they are not for.
	runIn(t, dir, "npm", append([]string{"install", "--offline", "--no-audit", "--no-fund", "--prefix", dir}, archives...)...)
	return filepath.Join(dir, "node_modules", ".bin", packages.Name)
}

func installWithPip(t *testing.T, built string) string {
	t.Helper()
	if err := exec.Command("python3", "-c", "import ensurepip, venv").Run(); err != nil {
		t.Skip("NOT RUN: python3 has no venv module")
	}
	dir := t.TempDir()
	runIn(t, dir, "python3", "-m", "venv", dir)
	pip := filepath.Join(dir, "bin", "pip")
	runIn(t, dir, pip, "install", "--disable-pip-version-check", "--no-index", "--pre", "--find-links", built, packages.Name)
	return filepath.Join(dir, "bin", packages.Name)
}

func runIn(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
