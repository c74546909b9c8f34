package archive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
)

// TestHostileNames: the manifest is refused before a file is written.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{
		{""}, {"."}, {".."}, {"../x"}, {"a/../../x"}, {"/etc/passwd"}, {"a//b"}, {"a/"}, {"./a"}, {"a/./b"},
		{`..\x`}, {`C:\x`}, {"C:x"}, {"a:stream"}, {"a\x00b"}, {"a\nb"}, {"a\x1b[2J"}, {"a\u202eb"},
		{"NUL"}, {"a/con"}, {"com1.txt"}, {"LPT9"}, {"nul .txt"}, {"COM¹"}, {"a."}, {"a "}, {"a./b"},
		{"manifest.json"}, {"Manifest.JSON"}, {"manifest.sha256"}, {"manifest.json/a"},
		{"a", "a"}, {"a", "A"}, {"ä", "Ä"}, {"ſ", "s"}, {"\u212a", "k"},
		{"a/b", "A/c"}, {"a", "a/b"}, {"a/b", "a"}, {"A/b", "a"},
		{strings.Repeat("n", archive.MaxNameBytes+1)}, {strings.Repeat("n", 256)}, {"a/" + strings.Repeat("n", 300)},
	} {
		f := forge()
		m := manifest()
		for _, name := range names {
			m.Parts = append(m.Parts, archive.Part{Name: name, SHA256: digest("")})
		}
		f.manifest = m
		refused(t, strings.Join(names, ", "), f, archive.ErrInvalid)
	}
}

// refused checks the error of an archive, that start was not called, and that nothing stays.
func refused(t *testing.T, name string, f *forgery, want error) {
	t.Helper()
	root := folder(t)
	start := func(archive.Manifest) error {
		t.Errorf("%q: the manifest was accepted", name)
		return nil
	}
	_, err := archive.Unpack(t.Context(), bytes.NewReader(pack(t, f.tar(t))), root, limits, start)
	if !errors.Is(err, want) {
		t.Errorf("%q: %v, want %v", name, err, want)
	}
	if left := list(t, root); left != nil {
		t.Errorf("%q left %v", name, left)
	}
}

func TestHostileManifests(t *testing.T) {
	t.Parallel()
	const begin = `{"format":"copilot-grpc.session","version":`
	huge := `"size":9223372036854775807,"sha256":"` + digest("") + `"}]}`
	part := `{"name":"a","size":1,"sha256":"` + digest("a") + `"}`
	deep := strings.Replace(part, `a"`, `a/b/c/d/e"`, 1)
	for name, c := range map[string]struct {
		manifest string
		want     error
	}{
		"empty":           {"", archive.ErrInvalid},
		"no JSON":         {"{", archive.ErrInvalid},
		"null":            {"null", archive.ErrInvalid},
		"deep":            {strings.Repeat("[", 1<<20), archive.ErrInvalid},
		"other format":    {`{"format":"x","version":1,"parts":[]}`, archive.ErrInvalid},
		"no version":      {`{"format":"copilot-grpc.session","parts":[]}`, archive.ErrInvalid},
		"negative":        {begin + `-1,"parts":[]}`, archive.ErrInvalid},
		"later version":   {begin + `2,"parts":[]}`, archive.ErrVersion},
		"no parts":        {begin + `1}`, archive.ErrInvalid},
		"null parts":      {begin + `1,"parts":null}`, archive.ErrInvalid},
		"wrong part":      {begin + `1,"parts":[1]}`, archive.ErrInvalid},
		"negative size":   {begin + `1,"parts":[` + strings.Replace(part, "1", "-1", 1) + `]}`, archive.ErrInvalid},
		"no digest":       {begin + `1,"parts":[{"name":"a","size":1}]}`, archive.ErrInvalid},
		"upper digest":    {begin + `1,"parts":[` + strings.ToUpper(part) + `]}`, archive.ErrInvalid},
		"digest is path":  {begin + `1,"parts":[{"name":"a","size":1,"sha256":"../../x"}]}`, archive.ErrInvalid},
		"large part":      {begin + `1,"parts":[{"name":"a",` + huge, archive.ErrLimit},
		"sum overflows":   {begin + `1,"parts":[` + part + `,{"name":"b",` + huge, archive.ErrLimit},
		"many parts":      {begin + `1,"parts":[` + strings.Repeat("{},", 1<<20) + `{}]}`, archive.ErrLimit},
		"deep name":       {begin + `1,"parts":[` + deep + `]}`, archive.ErrLimit},
		"manifest exceed": {strings.Repeat(" ", archive.MaxManifestBytes+1), archive.ErrLimit},
	} {
		f := forge()
		f.manifest = c.manifest
		refused(t, name, f, c.want)
	}
}

// TestHostileEntries: the manifest is correct, and the entries are not.
func TestHostileEntries(t *testing.T) {
	t.Parallel()
	one := file{"a", "text"}
	entry := func(h tar.Header, body string) *forgery {
		f := &forgery{manifest: manifest(one)}
		if h.Typeflag != tar.TypeReg { // the kind alone is wrong
			f.manifest = manifest(file{"a", body})
		}
		return f.entry(h, body)
	}
	for name, f := range map[string]*forgery{
		"symbolic link": entry(tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/etc/passwd"}, ""),
		"hard link":     entry(tar.Header{Typeflag: tar.TypeLink, Name: "a", Linkname: "/etc/passwd"}, ""),
		"device":        entry(tar.Header{Typeflag: tar.TypeChar, Name: "a", Devmajor: 1, Devminor: 3}, ""),
		"block device":  entry(tar.Header{Typeflag: tar.TypeBlock, Name: "a"}, ""),
		"pipe":          entry(tar.Header{Typeflag: tar.TypeFifo, Name: "a"}, ""),
		"folder":        entry(tar.Header{Typeflag: tar.TypeDir, Name: "a"}, ""),
		"other name":    entry(tar.Header{Typeflag: tar.TypeReg, Name: "../a"}, "text"),
		"other size":    entry(tar.Header{Typeflag: tar.TypeReg, Name: "a"}, "texts"),
		"other text":    entry(tar.Header{Typeflag: tar.TypeReg, Name: "a"}, "Text"),
		"bomb":          entry(tar.Header{Typeflag: tar.TypeReg, Name: "a"}, strings.Repeat("\x00", 8<<20)),
		"none":          {manifest: manifest(one)},
		"long comment": entry(tar.Header{Typeflag: tar.TypeReg, Name: "a", Format: tar.FormatPAX,
			PAXRecords: map[string]string{"V.note": strings.Repeat("n", 64<<10)}}, "text"),
		"one more":      forge(one).entry(tar.Header{Typeflag: tar.TypeReg, Name: "b"}, "text"),
		"wrong order":   {manifest: manifest(file{"b", ""}, one), entries: forge(one).entries, bodies: []string{"text"}},
		"no digest":     {manifest: manifest(), digest: "-"},
		"wrong digest":  {manifest: manifest(), digest: digest("x")},
		"after":         {manifest: manifest(), after: "x"},
		"zeros after":   {manifest: manifest(), after: strings.Repeat("\x00", 8<<20)},
		"data, zeros":   {manifest: manifest(), after: strings.Repeat("\x00", 8<<10) + "x"},
		"part twice":    forge(one).entry(tar.Header{Typeflag: tar.TypeReg, Name: "./a"}, "text"),
		"two manifests": forge(one).entry(tar.Header{Typeflag: tar.TypeReg, Name: "manifest.json"}, "{}"),
		"many folders":  folders(forge(one), 20),
	} {
		text := pack(t, f.tar(t))
		root := folder(t)
		_, err := archive.Unpack(t.Context(), bytes.NewReader(text), root, limits, nil)
		if !errors.Is(err, archive.ErrInvalid) && !errors.Is(err, archive.ErrLimit) {
			t.Errorf("%s: %v", name, err)
		}
		if left := list(t, root); left != nil {
			t.Errorf("%s left %v", name, left)
		}
	}
	for name, text := range map[string][]byte{
		"not gzip":      []byte("PK\x03\x04"),
		"data after":    append(write(t, one), 'x'),
		"second member": append(write(t, one), write(t, one)...),
	} {
		root := folder(t)
		_, err := archive.Unpack(t.Context(), bytes.NewReader(text), root, limits, nil)
		if !errors.Is(err, archive.ErrInvalid) || list(t, root) != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// folders adds entries of folders.
func folders(f *forgery, n int) *forgery {
	for range n {
		f.entry(tar.Header{Typeflag: tar.TypeDir, Name: "a/"}, "")
	}
	return f
}
