package deploy

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// releaseEnv is a clone with a tag and the files of its release: make release-test.
const releaseEnv = "COPILOT_GRPC_TEST_RELEASE"

// release returns the clone, its files and its version.
func release(t *testing.T) (clone, files, version string) {
	t.Helper()
	clone = os.Getenv(releaseEnv)
	if clone == "" {
		t.Skip(releaseEnv + " names no release: make release-test")
	}
	files = filepath.Join(clone, "bin", "release")
	text, err := os.ReadFile(filepath.Join(files, "metadata.json"))
	if err != nil {
		t.Fatal(err)
	}
	var metadata struct{ Version string }
	if err := json.Unmarshal(text, &metadata); err != nil {
		t.Fatal(err)
	}
	return clone, files, metadata.Version
}

// Each platform has an archive with the same files, and an SBOM with the program's version and modules.
func TestReleaseArchives(t *testing.T) {
	t.Parallel()
	_, files, version := release(t)
	for _, platform := range []string{
		"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64", "windows_amd64", "windows_arm64",
	} {
		base, program, read := filepath.Join(files, "copilot-grpc_"+version+"_"+platform), "copilot-grpc", tarFiles
		suffix := ".tar.gz"
		if strings.HasPrefix(platform, "windows") {
			program, read, suffix = "copilot-grpc.exe", zipFiles, ".zip"
		}
		names, err := read(base + suffix)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			program, "LICENSE", "README.md", "share/man/man1/copilot-grpc-serve.1",
			"share/bash-completion/completions/copilot-grpc", "share/zsh/vendor-completions/_copilot-grpc",
			"share/fish/vendor_completions.d/copilot-grpc.fish",
		} {
			if !slices.Contains(names, want) {
				t.Errorf("the archive for %s lacks %s: %q", platform, want, names)
			}
		}
		sbom, err := os.ReadFile(base + ".sbom.json")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"pkg:golang/google.golang.org/grpc@v", "pkg:golang/github.com/copilot-grpc/copilot-grpc@v" + version + "?",
			"pkg:golang/std@",
		} {
			if !strings.Contains(string(sbom), want) {
				t.Errorf("the SBOM for %s lacks %s", platform, want)
			}
		}
	}
}

func tarFiles(path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	var names []string
	for r := tar.NewReader(unpacked); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		} else if err != nil {
			return nil, err
		}
		names = append(names, header.Name)
	}
}

func zipFiles(path string) ([]string, error) {
	r, err := zip.OpenReader(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var names []string
	for _, file := range r.File {
		names = append(names, file.Name)
	}
	return names, nil
}

// The checksums name each file that is published.
func TestReleaseChecksums(t *testing.T) {
	t.Parallel()
	_, files, _ := release(t)
	runIn(t, files, "sha256sum", "--check", "--strict", "checksums.txt")
	sums, err := os.Open(filepath.Join(files, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer sums.Close()
	kinds := map[string]int{}
	for lines := bufio.NewScanner(sums); lines.Scan(); {
		kinds[regexp.MustCompile(`\.(tar\.gz|sbom\.json|[a-z]+)$`).FindString(lines.Text())]++
	}
	for kind, want := range map[string]int{".tar.gz": 4, ".zip": 2, ".deb": 2, ".rpm": 2, ".sbom.json": 6} {
		if kinds[kind] != want {
			t.Errorf("there are %d checksums of %s, want %d", kinds[kind], kind, want)
		}
	}
}

// dpkg installs the package into another root, and runs its scripts. The program says its version and reads the settings.
func TestReleaseDebianPackage(t *testing.T) {
	t.Parallel()
	_, files, version := release(t)
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: dpkg installs as root only")
	}
	architecture := strings.TrimSpace(output(t, "dpkg", "--print-architecture"))
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/updates", "var/lib/dpkg/info", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg := []string{"--root=" + root, "--force-script-chrootless", "--force-depends"}
	runIn(t, root, "dpkg", append(dpkg, "--install", filepath.Join(files, "copilot-grpc_"+version+"_"+architecture+".deb"))...)

	program := filepath.Join(root, "usr/bin/copilot-grpc")
	if got := output(t, program, "version"); !strings.HasPrefix(got, "copilot-grpc "+version+" ") {
		t.Errorf("the program says %q, want version %s", got, version)
	}
	output(t, program, "serve", "--config", filepath.Join(root, "etc/copilot-grpc/config.yaml"), "--print-config")
	users, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil || !strings.Contains(string(users), "copilot-grpc:x:") {
		t.Errorf("the users are %q, %v", users, err)
	}
	if info, err := os.Stat(filepath.Join(root, "etc/copilot-grpc")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("the folder of settings has the mode %v, %v", info.Mode(), err)
	}
	verifyUnit(t, root, program)
	runIn(t, root, "dpkg", append(dpkg, "--remove", "copilot-grpc")...)
	if _, err := os.Stat(program); err == nil {
		t.Error("the program is there after the package was removed")
	}
	if _, err := os.Stat(filepath.Join(root, "etc/copilot-grpc/config.yaml")); err != nil {
		t.Errorf("the settings are gone with the package: %v", err)
	}
}

// verifyUnit has systemd verify the installed unit, with the program where the package is installed.
func verifyUnit(t *testing.T, root, program string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/copilot-grpc.service"))
	if err != nil {
		t.Fatal(err)
	}
	const start = "\nExecStart=/usr/bin/copilot-grpc "
	if !strings.Contains(string(text), start) {
		t.Errorf("the unit does not start the program of the package: %s", text)
	}
	unit := filepath.Join(t.TempDir(), "copilot-grpc.service")
	text = []byte(strings.Replace(string(text), start, "\nExecStart="+program+" ", 1))
	if err := os.WriteFile(unit, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// Its exit code is also that of the machine's own units.
	found, err := exec.Command("systemd-analyze", "verify", "--man=no", "--generators=no", unit).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Log("NOT RUN: systemd-analyze is not installed")
	}
	for line := range strings.Lines(string(found)) {
		if strings.Contains(line, "copilot-grpc.service") {
			t.Error(line)
		}
	}
}

// rpm reads the package, its digests are right, and it has the files of the Debian package.
func TestReleaseRPM(t *testing.T) {
	t.Parallel()
	_, files, version := release(t)
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Skip("NOT RUN: rpm is not installed")
	}
	file := filepath.Join(files, "copilot-grpc-"+version+"-1.x86_64.rpm")
	output(t, "rpm", "--checksig", "--nosignature", file)
	list := output(t, "rpm", "--query", "--list", "--package", file)
	deb := output(t, "dpkg-deb", "--contents", filepath.Join(files, "copilot-grpc_"+version+"_amd64.deb"))
	for name := range strings.Lines(deb) {
		_, name, _ := strings.Cut(strings.TrimSpace(name), " ./")
		if !strings.HasSuffix(name, "/") && !strings.Contains(list, "/"+name+"\n") {
			t.Errorf("the rpm lacks %q", name)
		}
	}
	if got := output(t, "rpm", "--query", "--configfiles", "--package", file); got != "/etc/copilot-grpc/config.yaml\n" {
		t.Errorf("the settings are %q", got)
	}
}

// go install makes the program from the tag, with the tag's version in it. Other modules come from the module cache.
func TestReleaseGoInstall(t *testing.T) {
	t.Parallel()
	clone, _, version := release(t)
	const module = "github.com/copilot-grpc/copilot-grpc"
	cache := strings.TrimSpace(output(t, "go", "env", "GOMODCACHE"))
	dir := t.TempDir()
	cmd := exec.Command("go", "install", module+"/cmd/copilot-grpc@v"+version)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"GOBIN="+filepath.Join(dir, "bin"), "GOMODCACHE="+filepath.Join(dir, "mod"),
		"GOFLAGS=-modcacherw -trimpath -tags=grpcnotrace", "GOPROXY=file://"+filepath.Join(cache, "cache", "download")+",direct",
		"GONOPROXY="+module, "GOSUMDB=off", "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url."+clone+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+module)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go install: %v\n%s", err, out)
	}
	if got := output(t, filepath.Join(dir, "bin", "copilot-grpc"), "version"); !strings.HasPrefix(got, "copilot-grpc "+version+" ") {
		t.Errorf("the program says %q, want version %s", got, version)
	}
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			out = append(out, failed.Stderr...)
		}
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
