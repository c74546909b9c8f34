package archive_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
)

func sorted(files []file) []file {
	return slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	text := write(t, content...)
	root := folder(t)
	m, err := archive.Unpack(t.Context(), iotest.OneByteReader(bytes.NewReader(text)), root, limits, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := manifest(content...)
	if m.Session != want.Session || m.Epoch != want.Epoch || m.Seq != want.Seq ||
		!m.CreatedAt.Equal(want.CreatedAt) || !slices.Equal(m.Parts, want.Parts) {
		t.Errorf("manifest %+v, want %+v", m, want)
	}
	if got := sorted(list(t, root)); !slices.Equal(got, sorted(content)) {
		t.Errorf("files %v", got)
	}
}

// TestFutureMembers: a later release may add members to the manifest.
func TestFutureMembers(t *testing.T) {
	t.Parallel()
	f := forge()
	f.manifest = `{"format":"copilot-grpc.session","version":1,"mood":["good"],"parts":[]}`
	if _, err := archive.Unpack(t.Context(), bytes.NewReader(pack(t, f.tar(t))), folder(t), limits, nil); err != nil {
		t.Error(err)
	}
}

// TestCutOff: no beginning of an archive is accepted, and none leaves a file.
func TestCutOff(t *testing.T) {
	t.Parallel()
	text := write(t, content...)
	root := folder(t)
	for n := range text {
		_, err := archive.Unpack(t.Context(), bytes.NewReader(text[:n]), root, limits, nil)
		if !errors.Is(err, archive.ErrInvalid) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(text), err)
		}
		if left := list(t, root); left != nil {
			t.Fatalf("the first %d of %d bytes left %v", n, len(text), left)
		}
	}
}

// TestDamaged: a changed byte is noticed, or changes nothing.
func TestDamaged(t *testing.T) {
	t.Parallel()
	text := write(t, content...)
	root := folder(t)
	for n := range text {
		damaged := bytes.Clone(text)
		damaged[n] ^= 1 << (n % 8)
		_, err := archive.Unpack(t.Context(), bytes.NewReader(damaged), root, limits, nil)
		left := list(t, root)
		if err != nil && left != nil || err == nil && !slices.Equal(sorted(left), sorted(content)) {
			t.Fatalf("byte %d: %v left %v", n, err, left)
		}
		for _, f := range left {
			top, _, _ := strings.Cut(f.name, "/")
			_ = root.RemoveAll(top)
		}
	}
}

// TestErrorsOfOthers: an error that is not the archive's fault stays as it is.
func TestErrorsOfOthers(t *testing.T) {
	t.Parallel()
	text, boom := write(t, content...), errors.New("boom")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	run := func(name string, ctx context.Context, r io.Reader, start func(archive.Manifest) error, want error) {
		root := folder(t)
		_, err := archive.Unpack(ctx, r, root, limits, start)
		if !errors.Is(err, want) || errors.Is(err, archive.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if left := list(t, root); left != nil {
			t.Errorf("%s left %v", name, left)
		}
	}
	broken := io.MultiReader(bytes.NewReader(text[:len(text)-9]), iotest.ErrReader(boom))
	run("broken connection", t.Context(), broken, nil, boom)
	run("cancelled", cancelled, bytes.NewReader(text), nil, context.Canceled)
	run("refused", t.Context(), bytes.NewReader(text), func(archive.Manifest) error { return boom }, boom)

	root := folder(t)
	if err := root.WriteFile("mine", []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Unpack(t.Context(), bytes.NewReader(text), root, limits, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a folder with files: %v", err)
	}
	if got := list(t, root); !slices.Equal(got, []file{{"mine", "old"}}) {
		t.Errorf("the folder has %v by now", got)
	}
}

// TestPartIgnoresContent: the digest of a part counts also if its function does not read it.
func TestPartIgnoresContent(t *testing.T) {
	t.Parallel()
	f := forge(content...)
	f.bodies[1] = strings.Replace(f.bodies[1], "user", "evil", 1)
	_, err := archive.Read(t.Context(), bytes.NewReader(pack(t, f.tar(t))), limits, nil,
		func(archive.Part, io.Reader) error { return nil })
	if !errors.Is(err, archive.ErrInvalid) {
		t.Error(err)
	}
}

func TestWriterRefuses(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../x", "/x", "manifest.json", "a:b"} {
		if _, err := archive.NewWriter(io.Discard, manifest(file{name, ""})); !errors.Is(err, archive.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	one := file{"a", "text"}
	for name, use := range map[string]func(*archive.Writer) error{
		"other part": func(w *archive.Writer) error { return w.Add("b", strings.NewReader("text")) },
		"shorter":    func(w *archive.Writer) error { return w.Add("a", strings.NewReader("tex")) },
		"longer":     func(w *archive.Writer) error { return w.Add("a", strings.NewReader("texts")) },
		"other text": func(w *archive.Writer) error { return w.Add("a", strings.NewReader("Text")) },
		"no part":    func(w *archive.Writer) error { return w.Close() },
		"twice": func(w *archive.Writer) error {
			return errors.Join(w.Add("a", strings.NewReader("text")), w.Add("a", strings.NewReader("text")))
		},
	} {
		w, err := archive.NewWriter(io.Discard, manifest(one))
		if err != nil {
			t.Fatal(err)
		}
		if err := use(w); !errors.Is(err, archive.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzUnpack: no input leaves the folder, exceeds the limits, or leaves a part of itself.
func FuzzUnpack(f *testing.F) {
	f.Add(forge(content...).tar(f), true)
	f.Add(write(f, content...), false)
	f.Add(forge(file{"../x", "1"}, file{"a", ""}, file{"A", ""}).tar(f), true)
	f.Add(forge().entry(tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/"}, "").tar(f), true)
	f.Fuzz(func(t *testing.T, text []byte, packed bool) {
		if packed {
			text = pack(t, text)
		}
		root := folder(t)
		m, err := archive.Unpack(t.Context(), bytes.NewReader(text), root, limits, nil)
		got := list(t, root)
		if err != nil {
			known := slices.ContainsFunc([]error{archive.ErrInvalid, archive.ErrVersion, archive.ErrLimit},
				func(kind error) bool { return errors.Is(err, kind) })
			if !known || got != nil {
				t.Fatalf("%v left %v", err, got)
			}
			return
		}
		if len(got) != len(m.Parts) || len(got) > limits.Parts {
			t.Fatalf("%d files of %d parts", len(got), len(m.Parts))
		}
		for _, f := range got {
			i := slices.IndexFunc(m.Parts, func(p archive.Part) bool { return p.Name == f.name })
			if i < 0 || m.Parts[i].SHA256 != digest(f.text) || int64(len(f.text)) > limits.Bytes {
				t.Fatalf("the file %q is not of the manifest", f.name)
			}
		}
	})
}
