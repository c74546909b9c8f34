package packages

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// oldest is the first time that a zip archive can express.
var oldest = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// Wheel returns the wheel of a platform: the program as a script, which installers copy to PATH.
// See https://packaging.python.org/en/latest/specifications/binary-distribution-format/.
func Wheel(p Platform, version string, program []byte, texts Texts) (name string, wheel []byte, err error) {
	version, err = wheelVersion(version)
	if err != nil {
		return "", nil, err
	}
	base := strings.ReplaceAll(Name, "-", "_") + "-" + version
	info := base + ".dist-info/"
	tag := "py3-none-" + p.wheel
	files := []file{
		{name: base + ".data/scripts/" + p.Program(), content: program, executable: true},
		{name: info + "licenses/LICENSE", content: texts.License},
		{name: info + "METADATA", content: metadata(version, texts.Readme)},
		{name: info + "WHEEL", content: wheelFile(p)},
	}
	files = append(files, file{name: info + "RECORD", content: record(files, info+"RECORD")})
	var packed bytes.Buffer
	w := zip.NewWriter(&packed)
	for _, f := range files {
		header := zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: oldest}
		header.SetMode(fs.FileMode(f.mode()))
		entry, err := w.CreateHeader(&header)
		if err != nil {
			return "", nil, err
		}
		if _, err := entry.Write(f.content); err != nil {
			return "", nil, err
		}
	}
	if err := w.Close(); err != nil {
		return "", nil, err
	}
	return base + "-" + tag + ".whl", packed.Bytes(), nil
}

func metadata(version string, readme []byte) []byte {
	return fmt.Appendf(nil, `Metadata-Version: 2.4
Name: %s
Version: %s
Summary: %s
License-Expression: Apache-2.0
License-File: LICENSE
Project-URL: Source, https://github.com/copilot-grpc/copilot-grpc
Requires-Python: >=3.8
Description-Content-Type: text/markdown

%s`, Name, version, Summary, readme)
}

func wheelFile(p Platform) []byte {
	b := []byte("Wheel-Version: 1.0\nGenerator: copilot-grpc\nRoot-Is-Purelib: false\n")
	for platform := range strings.SplitSeq(p.wheel, ".") {
		b = fmt.Appendf(b, "Tag: py3-none-%s\n", platform)
	}
	return b
}

// record returns the list of a wheel's files with their digests, which cannot have its own.
func record(files []file, itself string) []byte {
	var b []byte
	for _, f := range files {
		digest := sha256.Sum256(f.content)
		b = fmt.Appendf(b, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(digest[:]), len(f.content))
	}
	return fmt.Appendf(b, "%s,,\n", itself)
}
