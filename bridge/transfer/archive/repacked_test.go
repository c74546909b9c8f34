package archive_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
)

// accepted checks that an archive has the files of content.
func accepted(t *testing.T, text []byte) {
	t.Helper()
	root := folder(t)
	m, err := archive.Unpack(t.Context(), bytes.NewReader(text), root, limits, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Session != "s1" || len(m.Parts) != len(content) {
		t.Errorf("manifest %+v", m)
	}
	if got := sorted(list(t, root)); !slices.Equal(got, sorted(content)) {
		t.Errorf("files %v", got)
	}
}

// TestRepackedByTar: an archive that the system's tar has unpacked and packed again is the same archive.
func TestRepackedByTar(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("tar")
	if err != nil {
		t.Skip("there is no tar")
	}
	dir := t.TempDir()
	run := func(t *testing.T, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
			t.Fatalf("tar %q: %v: %s", args, err, out)
		}
	}
	file, files := filepath.Join(dir, "session.tar.gz"), filepath.Join(dir, "files")
	if err := errors.Join(os.WriteFile(file, write(t, content...), 0o600), os.Mkdir(files, 0o700)); err != nil {
		t.Fatal(err)
	}
	run(t, "-xzf", file, "-C", files)
	all := []string{"manifest.sha256", "history", "session.json", "manifest.json"}
	for name, args := range map[string][]string{
		"folder":            {"."},
		"folder with slash": {"./"},
		"entries":           all,
		"other order":       {"manifest.json", "session.json", "history", "manifest.sha256"},
		"dotted":            {"./session.json", "./manifest.json", "./history", "./manifest.sha256"},
		"ustar":             {"--format=ustar", "."},
		"pax":               {"--format=pax", "."},
		"large records":     {"-b", "2048", "."},
		"small records":     {"-b", "1", "."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "again.tar.gz")
			run(t, append([]string{"-czf", out, "-C", files}, args...)...)
			text, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			accepted(t, text)
		})
	}
}

// entryOf returns an entry of a regular file.
func entryOf(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }

// repacked makes a tar archive of content with the entries of an archive in an order: -1 stands for the manifest, and
// -2 for its digest. change may change the entries.
func repacked(t *testing.T, order []int, change func(*tar.Header)) []byte {
	t.Helper()
	text, err := json.Marshal(manifest(content...))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, i := range order {
		f := file{"manifest.json", string(text)}
		switch {
		case i == -2:
			f = file{"manifest.sha256", digest(string(text))}
		case i >= 0:
			f = content[i]
		}
		h := entryOf(f.name)
		h.Mode, h.Size = 0o644, int64(len(f.text))
		if change != nil {
			change(&h)
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return pack(t, out.Bytes())
}

// TestRepackedOrders: the entries may have any order.
func TestRepackedOrders(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{
		{-1, 0, 1, 2, 3, -2}, {-2, -1, 3, 2, 1, 0}, {0, 1, 2, 3, -1, -2}, {3, -2, 2, -1, 1, 0}, {-1, -2, 2, 0, 3, 1},
	} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			accepted(t, repacked(t, order, nil))
		})
	}
}

// TestRepackedHeaders: the headers may have what other programs add, such as bsdtar on macOS.
func TestRepackedHeaders(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*tar.Header){
		"pax records": func(h *tar.Header) {
			h.Format, h.PAXRecords = tar.FormatPAX, map[string]string{
				"LIBARCHIVE.creationtime": "1732600000.123456789", "LIBARCHIVE.xattr.com.apple.provenance": "AQIAm0mUn9zRHgE",
				"SCHILY.dev": "16777231", "SCHILY.ino": "123456", "SCHILY.nlink": "1",
			}
		},
		"gnu":       func(h *tar.Header) { h.Format, h.Uname, h.Gname, h.Uid = tar.FormatGNU, "me", "staff", 501 },
		"ustar":     func(h *tar.Header) { h.Format = tar.FormatUSTAR },
		"dotted":    func(h *tar.Header) { h.Name = "./" + h.Name },
		"read-only": func(h *tar.Header) { h.Mode = 0o400 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			accepted(t, repacked(t, []int{-1, 0, 1, 2, 3, -2}, change))
		})
	}
}

// TestNotRepackable: what the format does not permit is refused before and after the manifest, and leaves nothing.
func TestNotRepackable(t *testing.T) {
	t.Parallel()
	all := []int{0, 1, 2, 3, -1, -2}
	unzipped := func() []byte { return forge(content...).tar(t) }
	large := strings.Repeat("n", 300)
	for name, text := range map[string][]byte{
		"not compressed":     unzipped(),
		"in a folder":        repacked(t, all, func(h *tar.Header) { h.Name = "session/" + h.Name }),
		"absolute":           repacked(t, all, func(h *tar.Header) { h.Name = "/" + h.Name }),
		"name of 300 bytes":  repacked(t, all, func(h *tar.Header) { h.Name = strings.Replace(h.Name, "empty", large, 1) }),
		"no manifest":        repacked(t, []int{0, 1, 2, 3, -2}, nil),
		"no digest":          repacked(t, []int{0, 1, 2, 3, -1}, nil),
		"no part":            repacked(t, []int{0, 1, 2, -1, -2}, nil),
		"part twice":         repacked(t, []int{0, 0, 1, 2, 3, -1, -2}, nil),
		"other part":         repacked(t, all, func(h *tar.Header) { h.Name = strings.Replace(h.Name, "empty", "x", 1) }),
		"manifest twice":     repacked(t, append([]int{-1}, all...), nil),
		"digest twice":       repacked(t, append([]int{-2}, all...), nil),
		"links":              repacked(t, []int{3, -1}, func(h *tar.Header) { link(h) }),
		"ends in the middle": pack(t, unzipped()[:700]),
	} {
		root := folder(t)
		_, err := archive.Unpack(t.Context(), bytes.NewReader(text), root, limits, nil)
		if !errors.Is(err, archive.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if left := list(t, root); left != nil {
			t.Errorf("%s left %v", name, left)
		}
	}
	small := limits
	for name, change := range map[string]func(*archive.Limits){
		"bytes": func(l *archive.Limits) { l.Bytes = 100 }, "parts": func(l *archive.Limits) { l.Parts = 3 },
		"depth": func(l *archive.Limits) { l.Depth = 2 },
	} {
		limits, root := small, folder(t)
		change(&limits)
		_, err := archive.Unpack(t.Context(), bytes.NewReader(repacked(t, all, nil)), root, limits, nil)
		if !errors.Is(err, archive.ErrLimit) || list(t, root) != nil {
			t.Errorf("the limit of %s: %v", name, err)
		}
	}
}

// link makes a symbolic link of an empty file.
func link(h *tar.Header) {
	if h.Size == 0 {
		h.Typeflag, h.Linkname = tar.TypeSymlink, "/etc/passwd"
	}
}
