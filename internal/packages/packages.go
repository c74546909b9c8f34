// Package packages wraps builds of the program as packages of npm and PyPI, so that people who have Node.js or Python
// can run it without a Go toolchain: npx copilot-grpc serve, uvx copilot-grpc serve.
//
// For npm that is a package copilot-grpc with a launcher, and a package with the program for each platform, of which npm
// installs the one that fits. For PyPI it is a wheel for each platform, which installers put on PATH without running
// anything. Equal inputs give equal bytes.
package packages

import (
	"errors"
	"fmt"
	"regexp"
)

// Name is the name of the program, and of its packages on both registries. The libraries there have other names.
const Name = "copilot-grpc"

// Summary is the description that the registries show.
const Summary = "Server that offers the GitHub Copilot CLI as a typed gRPC API"

// Platform is a system that the program is built for, in the words of Go and of both registries.
type Platform struct {
	OS, Arch string // GOOS and GOARCH
	npmOS    string // process.platform of Node.js
	npmArch  string // process.arch of Node.js
	wheel    string // platform tags of wheels
}

// Platforms are those with packages. The programs for Linux are static, so that they run with any C library.
var Platforms = []Platform{
	{"linux", "amd64", "linux", "x64", "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"},
	{"linux", "arm64", "linux", "arm64", "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64"},
	{"darwin", "amd64", "darwin", "x64", "macosx_11_0_x86_64"},
	{"darwin", "arm64", "darwin", "arm64", "macosx_11_0_arm64"},
	{"windows", "amd64", "win32", "x64", "win_amd64"},
	{"windows", "arm64", "win32", "arm64", "win_arm64"},
}

// Find returns the platform with some GOOS and GOARCH.
func Find(goos, goarch string) (Platform, error) {
	for _, p := range Platforms {
		if p.OS == goos && p.Arch == goarch {
			return p, nil
		}
	}
	return Platform{}, fmt.Errorf("there are no packages for %s/%s", goos, goarch)
}

// Program returns the name of the program's file.
func (p Platform) Program() string {
	if p.OS == "windows" {
		return Name + ".exe"
	}
	return Name
}

// npmName returns the name of the npm package with the program.
func (p Platform) npmName() string { return "@copilot-grpc/server-" + p.npmOS + "-" + p.npmArch }

// Texts are the files that every package has.
type Texts struct {
	Readme, License []byte
}

// file is an entry of an archive.
type file struct {
	name       string
	content    []byte
	executable bool
}

func (f file) mode() uint32 {
	if f.executable {
		return 0o755
	}
	return 0o644
}

// semantic is a version as npm has it, with no more than a numbered alpha, beta or rc, which PyPI can express.
var semantic = regexp.MustCompile(`^(\d+\.\d+\.\d+)(?:-(alpha|beta|rc)\.(\d+))?$`)

// wheelVersion returns a semantic version as PyPI writes it: 1.2.3-rc.1 is 1.2.3rc1.
func wheelVersion(version string) (string, error) {
	parts := semantic.FindStringSubmatch(version)
	if parts == nil {
		return "", errors.New("a version is MAJOR.MINOR.PATCH, with -alpha.N, -beta.N or -rc.N if it is no release: " + version)
	}
	short := map[string]string{"": "", "alpha": "a", "beta": "b", "rc": "rc"}
	return parts[1] + short[parts[2]] + parts[3], nil
}
