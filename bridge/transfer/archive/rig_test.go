package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
)

var (
	limits  = archive.Limits{Bytes: 1 << 20, Parts: 8, Depth: 4}
	content = []file{
		{"session.json", `{"labels":{"team":"a"}}`},
		{"history/events.jsonl", strings.Repeat("{\"type\":\"user.message\"}\n", 100)},
		{"history/checkpoints/001 first.md", "# First\n"},
		{"history/empty", ""},
	}
)

type file struct{ name, text string }

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func manifest(files ...file) archive.Manifest {
	m := archive.Manifest{
		Format: archive.Format, Version: archive.Version, Session: "s1",
		CreatedAt: time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC), Epoch: 1 << 60, Seq: 42, Parts: []archive.Part{},
	}
	for _, f := range files {
		m.Parts = append(m.Parts, archive.Part{Name: f.name, Size: int64(len(f.text)), SHA256: digest(f.text)})
	}
	return m
}

func write(t testing.TB, files ...file) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := archive.NewWriter(&out, manifest(files...))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := w.Add(f.name, strings.NewReader(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// forgery is an archive that Writer would not write.
type forgery struct {
	manifest any // text, or a value for JSON
	entries  []tar.Header
	bodies   []string
	digest   string // "-" for none
	after    string // behind the tar archive, in the gzip stream
}

// forge describes a correct archive.
func forge(files ...file) *forgery {
	f := &forgery{manifest: manifest(files...)}
	for _, c := range files {
		f.entry(tar.Header{Typeflag: tar.TypeReg, Name: c.name}, c.text)
	}
	return f
}

func (f *forgery) entry(h tar.Header, body string) *forgery {
	h.Size = int64(len(body))
	f.entries, f.bodies = append(f.entries, h), append(f.bodies, body)
	return f
}

func (f *forgery) tar(t testing.TB) []byte {
	t.Helper()
	text, isText := f.manifest.(string)
	if !isText {
		b, err := json.Marshal(f.manifest)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(h tar.Header, body string) {
		h.Mode = 0o777
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "manifest.json", Size: int64(len(text))}, text)
	for i, h := range f.entries {
		add(h, f.bodies[i])
	}
	if f.digest == "" {
		f.digest = digest(text)
	}
	if f.digest != "-" {
		add(tar.Header{Typeflag: tar.TypeReg, Name: "manifest.sha256", Size: int64(len(f.digest))}, f.digest)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out.WriteString(f.after)
	return out.Bytes()
}

func pack(t testing.TB, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func folder(t testing.TB) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// list returns the files and empty folders in root.
func list(t testing.TB, root *os.Root) (files []file) {
	t.Helper()
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() {
			if below, _ := fs.ReadDir(root.FS(), name); len(below) == 0 {
				files = append(files, file{name + "/", ""})
			}
			return nil
		}
		text, err := fs.ReadFile(root.FS(), name)
		files = append(files, file{name, string(text)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
