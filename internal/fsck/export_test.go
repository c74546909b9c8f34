package fsck_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
	"github.com/copilot-grpc/copilot-grpc/internal/fsck"
)

// exported are the parts of an export.
func exported() map[string]string {
	return map[string]string{
		"session.json": `{"create":{"labels":{"team":"a"}}}`,
		"journal.jsonl": `{"event":{"type":"session.start","data":{},"id":"00000000-0000-0000-0000-000000000001"}}` + "\n" +
			`{"bridge":true,"event":{"type":"session.idle","ephemeral":true,"data":{},"id":"x"}}` + "\n",
		"history/events.jsonl":      `{"type":"session.start"}` + "\n",
		"history/events.1.jsonl":    `{"type":"session.start"}` + "\n",
		"history/files/a/b text.md": strings.Repeat("text\n", 50),
	}
}

// manifestOf is the manifest of parts.
func manifestOf(parts map[string]string) archive.Manifest {
	m := archive.Manifest{Format: archive.Format, Version: archive.Version, Session: "s1", Epoch: 1 << 60, Seq: 42}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		sum := sha256.Sum256([]byte(parts[name]))
		m.Parts = append(m.Parts, archive.Part{Name: name, Size: int64(len(parts[name])), SHA256: hex.EncodeToString(sum[:])})
	}
	return m
}

// written is an export as a server writes it.
func written(t *testing.T, parts map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	m := manifestOf(parts)
	w, err := archive.NewWriter(&out, m)
	must(t, err)
	for _, p := range m.Parts {
		must(t, w.Add(p.Name, strings.NewReader(parts[p.Name])))
	}
	must(t, w.Close())
	return out.Bytes()
}

// entry is one of a tar archive. Zero fields of its header are those of a regular file.
type entry struct {
	tar.Header
	text string
}

// entriesOf are those of an export.
func entriesOf(t *testing.T, parts map[string]string) (out []entry) {
	t.Helper()
	text, err := json.Marshal(manifestOf(parts))
	must(t, err)
	sum := sha256.Sum256(text)
	out = append(out, file("manifest.json", string(text)), file("manifest.sha256", hex.EncodeToString(sum[:])))
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		out = append(out, file(name, parts[name]))
	}
	return out
}

func file(name, text string) entry { return entry{tar.Header{Name: name}, text} }

// packed is a file of entries. after follows the tar archive.
func packed(t *testing.T, entries []entry, after string) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	for _, e := range entries {
		e.Mode, e.Size = 0o600, int64(len(e.text))
		must(t, w.WriteHeader(&e.Header))
		_, err := io.WriteString(w, e.text)
		must(t, err)
	}
	must(t, w.Close())
	_, err := io.WriteString(compressed, after)
	must(t, errors.Join(err, compressed.Close()))
	return out.Bytes()
}

// checkExport verifies a file, which stays as it is.
func checkExport(t *testing.T, data []byte) (*fsck.Report, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "s.tar.gz")
	must(t, os.WriteFile(name, data, 0o400))
	r, err := fsck.Check(t.Context(), name)
	if left, _ := os.ReadFile(name); !bytes.Equal(left, data) {
		t.Error("the file was changed")
	}
	return r, err
}

// The export of a server is clean, also after other programs have packed it again.
func TestExport(t *testing.T) {
	t.Parallel()
	data := written(t, exported())
	again := entriesOf(t, exported())
	slices.Reverse(again)
	for i := range again {
		again[i].Name = "./" + again[i].Name
	}
	again = append(again, entry{tar.Header{Typeflag: tar.TypeDir, Name: "./history/"}, ""})
	for name, data := range map[string][]byte{"written": data, "packed again": packed(t, again, strings.Repeat("\x00", 1<<20))} {
		r, err := checkExport(t, data)
		if err != nil || r.Damage.Total+r.Notes.Total > 0 || len(r.Sessions) != 1 {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
		size := int64(len(data))
		want := fsck.Session{Key: "s1", Folder: "s.tar.gz", Epoch: 1 << 60, Last: 42, Events: 2, Closed: true, Bytes: size}
		if fmt.Sprint(r.Sessions[0]) != fmt.Sprint(want) || r.Bytes != size || r.Locked {
			t.Errorf("%s: %+v, want %+v", name, r, want)
		}
	}
}

// Every beginning of an export is damaged.
func TestExportIsCutOff(t *testing.T) {
	t.Parallel()
	data := written(t, exported())
	for n := range data {
		if r, err := checkExport(t, data[:n]); err != nil || r.Damage.Total == 0 || r.Sessions[0].Closed {
			t.Fatalf("the first %d of %d bytes: %+v, %v", n, len(data), r, err)
		}
	}
}

// A flipped bit is found unless it changes nothing of the content.
func TestFlippedBitsOfAnExport(t *testing.T) {
	t.Parallel()
	inflated := func(data []byte) []byte {
		r, err := gzip.NewReader(bytes.NewReader(data))
		must(t, err)
		content, err := io.ReadAll(r)
		must(t, err)
		return content
	}
	data := written(t, exported())
	content, clean := inflated(data), 0
	for bit := range 8 * len(data) {
		flipped := bytes.Clone(data)
		flipped[bit/8] ^= 1 << (bit % 8)
		r, err := checkExport(t, flipped)
		if errors.Is(err, fsck.ErrLater) {
			continue
		}
		if must(t, err); r.Damage.Total > 0 {
			continue
		}
		if clean++; !bytes.Equal(inflated(flipped), content) {
			t.Errorf("bit %d is not found", bit)
		}
	}
	if clean > 8*len(data)/20 { // 6 bytes of the gzip header, and bits of codes that do not occur
		t.Errorf("%d bits of %d bytes are not found", clean, len(data))
	}
}

// with returns the parts with another one; without a text the part is missing.
func with(name, text string) map[string]string {
	parts := exported()
	if parts[name] = text; text == "" {
		delete(parts, name)
	}
	return parts
}

// Each part that is wrong by the page is found, although its digests are right.
func TestPartsOfAnExport(t *testing.T) {
	t.Parallel()
	event := `{"event":{"type":"t","id":"AAAAAAAA-0000-0000-0000-000000000001"}}` + "\n"
	deep := "history/files/" + strings.Repeat("d/", 6) + "f"
	for _, one := range []struct {
		name, text string
		found      string // in the damage; empty for none
	}{
		{"journal.jsonl", "", "manifest.json does not have the part journal.jsonl"},
		{"session.json", "", "manifest.json does not have the part session.json"},
		{"session.json", `{"create":[]}`, "session.json has no request"},
		{"session.json", `{}`, "session.json has no request"},
		{"session.json", strings.Repeat(" ", 4<<20+1), "more than 4194304"},
		{"journal.jsonl", event + "\n \n" + strings.Replace(event, "1\"", "2\"", 1), ""},
		{"journal.jsonl", event + "\n" + strings.ToLower(event), "journal.jsonl has event aaaaaaaa000000000000000000000001 twice: 1 and 3"},
		{"journal.jsonl", strings.Repeat(`{"event":{"type":"t","id":"x"}}`+"\n", 2), "twice: 1 and 2"},
		{"journal.jsonl", strings.Repeat(`{"event":{"type":"t"}}`+"\n", 2), ""},
		{"journal.jsonl", event + event[:20], "journal.jsonl line 2 is not an event"},
		{"journal.jsonl", `{"event":{"id":"x"}}`, "journal.jsonl line 1 is not an event"},
		{"journal.jsonl", `{"event":["type"]}`, "journal.jsonl line 1 is not an event"},
		{"journal.jsonl", "{\"event\":{\"type\":\"\xff\"}}", "journal.jsonl line 1 is not UTF-8"},
		{"journal.jsonl", `{"event":{"type":"assistant.message_delta","ephemeral":true}}`, "line 1 is an ephemeral event"},
		{"journal.jsonl", event + strings.Repeat(" ", 32<<20+1), "journal.jsonl line 2 has more than 33554432 bytes"},
		{"history/plan.md", "x", ""},
		{"history/session.db", "x", "history/session.db is not a part"},
		{"history/checkpoints", "x", "history/checkpoints is not a part"},
		{"history/files/../../etc", "x", "is not a part"},
		{"history/files/A/c", "x", `clashes with "history/files/`},
		{"history/files/a", "x", `clashes with "history/files/a`},
		{"history/files/nul.txt", "x", `has the element "nul.txt"`},
		{"history/files/COM¹", "x", `has the element "COM¹"`},
		{"history/files/x.", "x", `has the element "x."`},
		{"history/files/" + strings.Repeat("n", 256), "x", "has the element"},
		{"history/files/a\x1b[1m", "x", "has the character '\\x1b'"},
		{`history/files/a\b`, "x", "has the character"},
		{deep, "x", "is not a part"},
		{strings.Replace(deep, "d/", "", 1), "x", ""},
		{"other", "x", "other is not a part"},
	} {
		r, err := checkExport(t, packed(t, entriesOf(t, with(one.name, one.text)), ""))
		if err != nil || (r.Damage.Total > 0) != (one.found != "") || !strings.Contains(texts(r), one.found) {
			t.Errorf("%.60s, %.60q: %+v, %v; want %q", one.name, one.text, r, err, one.found)
		}
	}
}

// texts are the findings of damage as lines.
func texts(r *fsck.Report) string {
	var lines strings.Builder
	for _, f := range r.Damage.List {
		fmt.Fprintf(&lines, "%s %s\n", f.Path, f.Text)
	}
	return lines.String()
}

// Each entry that is wrong is found.
func TestEntriesOfAnExport(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		edit  func(all []entry) []entry // manifest.json, manifest.sha256, then the parts by name
		found string
	}{
		"no manifest":        {func(all []entry) []entry { return all[1:] }, "manifest.json is missing"},
		"no digest":          {func(all []entry) []entry { return slices.Delete(all, 1, 2) }, "manifest.sha256 is missing"},
		"no part":            {func(all []entry) []entry { return all[:len(all)-1] }, "session.json is missing"},
		"one more":           {func(all []entry) []entry { return append(all, file("history/plan.md", "")) }, "history/plan.md is not in the manifest"},
		"twice":              {func(all []entry) []entry { return append(all, all[3]) }, "history/events.jsonl is there twice"},
		"two manifests":      {func(all []entry) []entry { return append(all, all[0]) }, "manifest.json is not a part"},
		"changed":            {func(all []entry) []entry { all[3].text = "{}"; return all }, "history/events.jsonl has 2 bytes"},
		"of the same length": {func(all []entry) []entry { all[5].text = strings.ToUpper(all[5].text); return all }, "SHA-256"},
		"parts swapped":      {func(all []entry) []entry { all[2].text, all[4].text = all[4].text, all[2].text; return all }, "SHA-256"},
		"other digest":       {func(all []entry) []entry { all[1].text = strings.Repeat("0", 64); return all }, "manifest.sha256 is not the SHA-256"},
		"long digest":        {func(all []entry) []entry { all[1].text += "\n"; return all }, "manifest.sha256 is not the SHA-256"},
		"other manifest":     {func(all []entry) []entry { all[0].text += " "; return all }, "manifest.sha256 is not the SHA-256"},
		"no manifest's text": {func(all []entry) []entry { all[0].text = "[]"; return all }, "manifest.json is not the manifest"},
		"no parts": {func(all []entry) []entry {
			all[0].text = `{"format":"copilot-grpc.session","version":1,"parts":null}`
			return all
		}, "no list"},
		"other format":   {replaced("copilot-grpc.session", "other"), `its format is "other"`},
		"version 0":      {replaced(`"version":1`, `"version":0`), "its version 0"},
		"large manifest": {func(all []entry) []entry { all[0].text = strings.Repeat(" ", 4<<20+1); return all }, "more than 4194304"},
		"link": {func(all []entry) []entry {
			return append(all, entry{tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/etc/passwd"}, ""})
		}, "not a regular file"},
		"device": {func(all []entry) []entry {
			return append(all, entry{tar.Header{Typeflag: tar.TypeChar, Name: "a"}, ""})
		}, "not a regular file"},
		"long header": {func(all []entry) []entry {
			all[2].Format, all[2].PAXRecords = tar.FormatPAX, map[string]string{"V.note": strings.Repeat("n", 64<<10)}
			return all
		}, "too long"},
		"many folders": {func(all []entry) []entry {
			return append(all, slices.Repeat([]entry{{tar.Header{Typeflag: tar.TypeDir, Name: "a/"}, ""}}, 10_009)...)
		}, "more than 10008 folders"},
		"many parts": {func(all []entry) []entry {
			for i := range 10_000 {
				all = append(all, file(fmt.Sprint("history/files/", i), ""))
			}
			return all
		}, "more than 10000 parts"},
	} {
		r, err := checkExport(t, packed(t, one.edit(entriesOf(t, exported())), ""))
		if err != nil || r.Damage.Total == 0 || !strings.Contains(texts(r), one.found) || r.Sessions[0].Damage != r.Damage.Total {
			t.Errorf("%s: %+v, %v; want %q", name, r, err, one.found)
		}
	}
	data := written(t, exported())
	for found, data := range map[string][]byte{
		"data follow the tar archive":             packed(t, entriesOf(t, exported()), strings.Repeat("\x00", 8<<10)+"x"),
		"the zeros behind the last one, are too":  packed(t, entriesOf(t, exported()), strings.Repeat("\x00", 1<<20+1)),
		"data follow the gzip stream":             append(bytes.Clone(data), data...),
		"the gzip header: gzip: invalid header":   []byte("an article of a newspaper"),
		"s.tar.gz cannot be read to its end: the": nil,
		"more than 268435456 bytes":               headerOf(t, 256<<20+1),
		`the entry "history/plan.md": unexpected`: headerOf(t, 256<<20),
	} {
		if r, err := checkExport(t, data); err != nil || !strings.Contains(texts(r), found) {
			t.Errorf("%+v, %v; want %q", r, err, found)
		}
	}
}

// replaced changes the text of the manifest.
func replaced(from, to string) func(all []entry) []entry {
	return func(all []entry) []entry {
		all[0].text = strings.Replace(all[0].text, from, to, 1)
		return all
	}
}

// What is no export of a known version is refused with words.
func TestExportsNotVerified(t *testing.T) {
	t.Parallel()
	all := replaced(`"version":1`, `"version":2,"parts":"new"`)(entriesOf(t, exported()))
	_, err := checkExport(t, packed(t, all, ""))
	if !errors.Is(err, fsck.ErrLater) || !strings.Contains(err.Error(), "of a later version: the version of its format is 2, later than 1") {
		t.Errorf("a later version: %v", err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	if _, err := fsck.Check(t.Context(), pipe); !errors.Is(err, fsck.ErrNoDirectory) {
		t.Errorf("a pipe: %v", err)
	}
	name := filepath.Join(t.TempDir(), "s.tar.gz")
	must(t, os.WriteFile(name, written(t, exported()), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fsck.Check(ctx, name); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A large export is not held in memory.
func TestLargeExport(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	data := packed(t, entriesOf(t, with("history/files/zeros", strings.Repeat("\x00", 24<<20))), "")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := checkExport(t, data)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; err != nil || r.Damage.Total > 0 || used > 4<<20 {
		t.Errorf("%+v, %v, with %d bytes for a file of %d", r, err, used, len(data))
	}
}

// headerOf is a file that ends behind the header of a part.
func headerOf(t *testing.T, size int64) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	must(t, tar.NewWriter(compressed).WriteHeader(&tar.Header{Name: "history/plan.md", Size: size}))
	must(t, compressed.Close())
	return out.Bytes()
}
