// Command packages writes the npm and PyPI packages of the program. Each -program is GOOS/GOARCH=FILE; the package of
// npm that starts them is always written. .ci/release calls it with the programs of a release.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/internal/packages"
)

func main() {
	version := flag.String("version", "", "version of the packages, such as 0.1.0 or 0.1.0-rc.1")
	out := flag.String("out", "bin/release/packages", "folder for the packages")
	programs := make(map[packages.Platform]string)
	flag.Func("program", "GOOS/GOARCH=FILE, may be repeated", func(value string) error {
		platform, file, _ := strings.Cut(value, "=")
		goos, goarch, _ := strings.Cut(platform, "/")
		p, err := packages.Find(goos, goarch)
		programs[p] = file
		return err
	})
	list := flag.Bool("platforms", false, "print the platforms that have packages")
	flag.Parse()
	if *list {
		for _, p := range packages.Platforms {
			fmt.Println(p.OS + "/" + p.Arch)
		}
		return
	}
	if err := write(*out, *version, programs); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

func write(out, version string, programs map[packages.Platform]string) error {
	texts, err := readTexts()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	save := func(name string, content []byte, err error) error {
		if err != nil {
			return err
		}
		fmt.Printf("%s: %d KiB\n", name, len(content)>>10)
		return os.WriteFile(filepath.Join(out, name), content, 0o644)
	}
	if err := save(packages.NPM(version, texts)); err != nil {
		return err
	}
	for platform, file := range programs {
		program, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := save(packages.NPMProgram(platform, version, program, texts)); err != nil {
			return err
		}
		if err := save(packages.Wheel(platform, version, program, texts)); err != nil {
			return err
		}
	}
	return nil
}

// readTexts reads the texts from the root of the repository, which is the working directory.
func readTexts() (packages.Texts, error) {
	readme, err := os.ReadFile("deploy/packages.md")
	if err != nil {
		return packages.Texts{}, err
	}
	license, err := os.ReadFile("LICENSE")
	return packages.Texts{Readme: readme, License: license}, err
}
