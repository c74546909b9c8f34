package packages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"strings"
)

// launcher is the program of the npm package copilot-grpc.
//
//go:embed launcher.js
var launcher []byte

// manifest is what we use of a package.json.
type manifest struct {
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Description  string            `json:"description"`
	License      string            `json:"license"`
	Repository   repository        `json:"repository"`
	Engines      map[string]string `json:"engines,omitempty"`
	Bin          map[string]string `json:"bin,omitempty"`
	OS           []string          `json:"os,omitempty"`
	CPU          []string          `json:"cpu,omitempty"`
	Dependencies map[string]string `json:"optionalDependencies,omitempty"`
}

type repository struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

func newManifest(name, version, description string) manifest {
	return manifest{
		Name: name, Version: version, Description: description, License: "Apache-2.0",
		Repository: repository{Type: "git", URL: "git+https://github.com/copilot-grpc/copilot-grpc.git"},
	}
}

// NPM returns the npm package copilot-grpc, which starts the program of the platform's package.
func NPM(version string, texts Texts) (name string, archive []byte, err error) {
	if _, err := wheelVersion(version); err != nil {
		return "", nil, err
	}
	m := newManifest(Name, version, Summary)
	m.Engines = map[string]string{"node": ">=18"}
	m.Bin = map[string]string{Name: "bin/" + Name + ".js"}
	m.Dependencies = make(map[string]string, len(Platforms))
	for _, p := range Platforms {
		m.Dependencies[p.npmName()] = version
	}
	return npmArchive(m, texts, file{name: m.Bin[Name], content: launcher, executable: true})
}

// NPMProgram returns the npm package with the program for a platform.
func NPMProgram(p Platform, version string, program []byte, texts Texts) (name string, archive []byte, err error) {
	if _, err := wheelVersion(version); err != nil {
		return "", nil, err
	}
	m := newManifest(p.npmName(), version, Summary+", for "+p.npmOS+" "+p.npmArch)
	m.OS, m.CPU = []string{p.npmOS}, []string{p.npmArch}
	return npmArchive(m, texts, file{name: "bin/" + p.Program(), content: program, executable: true})
}

// npmArchive returns the archive that npm publishes, and the name that npm pack gives it.
func npmArchive(m manifest, texts Texts, content file) (name string, archive []byte, err error) {
	described, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return "", nil, err
	}
	var packed bytes.Buffer
	compressed := gzip.NewWriter(&packed)
	w := tar.NewWriter(compressed)
	for _, f := range []file{
		{name: "package.json", content: append(described, '\n')},
		{name: "README.md", content: texts.Readme},
		{name: "LICENSE", content: texts.License},
		content,
	} {
		// npm refuses entries outside of this folder.
		header := tar.Header{Name: "package/" + f.name, Mode: int64(f.mode()), Size: int64(len(f.content)), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(&header); err != nil {
			return "", nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return "", nil, err
		}
	}
	if err := w.Close(); err != nil {
		return "", nil, err
	}
	if err := compressed.Close(); err != nil {
		return "", nil, err
	}
	name = strings.NewReplacer("@", "", "/", "-").Replace(m.Name) + "-" + m.Version + ".tgz"
	return name, packed.Bytes(), nil
}
