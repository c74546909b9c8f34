package transfer

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
	"github.com/copilot-grpc/copilot-grpc/internal/fsck"
)

// readable returns why an import refuses an archive, and reports whether its session.json is not to blame.
func readable(t *testing.T, text []byte) (described bool, err error) {
	t.Helper()
	s, err := newStaging(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.remove() }()
	if _, err = s.unpack(t.Context(), bytes.NewReader(text), func(int64) error { return nil }); err != nil {
		return true, err
	}
	events, err := s.folder.Open(journalFile)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	j := journal.New(journal.Config{Epoch: 1})
	defer func() { _ = j.Close(context.WithoutCancel(t.Context())) }()
	if _, err = readEvents(t.Context(), events, j); err != nil {
		return true, err
	}
	state, err := s.folder.ReadFile(stateFile)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = parseState(state)
	return err == nil, err
}

// agree compares the import of an archive with its verification, which does not look at all members of session.json.
func agree(t *testing.T, text []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "s.tar.gz")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	described, imported := readable(t, text)
	switch r, err := fsck.Check(t.Context(), file); {
	case err != nil && (!errors.Is(err, fsck.ErrLater) || imported == nil), err == nil && errors.Is(imported, archive.ErrVersion):
		t.Errorf("the verifier: %v, the import: %v", err, imported)
	case err == nil && r.Damage.Total > 0 && imported == nil, err == nil && r.Damage.Total == 0 && imported != nil && described:
		t.Errorf("the verifier: %+v, the import: %v", r.Damage, imported)
	}
}

// chosen is a series of choices.
type chosen []byte

func (c *chosen) next(n int) int {
	if len(*c) == 0 {
		return 0
	}
	b := (*c)[0]
	*c = (*c)[1:]
	return int(b) % n
}

// damage changes a text, or cuts it off.
func (c *chosen) damage(text string) string {
	if text == "" {
		return "x"
	}
	i := c.next(256) * len(text) / 256
	if c.next(4) == 0 {
		return text[:i]
	}
	return text[:i] + string([]byte{text[i] ^ 1<<c.next(8)}) + text[i+1:]
}

// archiveEntry is an entry of a tar archive.
type archiveEntry struct {
	name, text string
	kind       byte
}

// entries are those of an archive, with damage that data chooses: random bytes have no right checksums.
func (c *chosen) entries() []archiveEntry {
	out := []archiveEntry{
		{stateFile, `{"create":{"labels":{"a":"b"}},"name":"n"}`, tar.TypeReg},
		{journalFile, `{"event":{"type":"t","id":"1"}}` + "\n" + `{"bridge":true,"event":{"type":"u","id":"2","ephemeral":false}}`, tar.TypeReg},
		{"history/events.jsonl", "{}\n", tar.TypeReg}, {"history/files/a", "text", tar.TypeReg}, {"history/plan.md", "", tar.TypeReg},
	}
	names := []string{
		"history/files/A", "history/Files/b", "history/events.1.jsonl", "history/files/a/b", "history/files/aux.c", "x", "../x",
		"manifest.json", "history/checkpoints/" + strings.Repeat("n", 250), "history/checkpoints/" + strings.Repeat("n/", 5) + "n",
	}
	for range c.next(4) {
		switch e := &out[c.next(len(out))]; c.next(4) {
		case 0:
			e.name = names[c.next(len(names))]
		case 1:
			e.text += e.text
		default:
			e.text = c.damage(e.text)
		}
	}
	m := archive.Manifest{Format: archive.Format, Version: 1 + c.next(20)/19, Session: "s", Epoch: 1, Seq: 2}
	for _, e := range out {
		sum := sha256.Sum256([]byte(e.text))
		m.Parts = append(m.Parts, archive.Part{Name: e.name, Size: int64(len(e.text)), SHA256: hex.EncodeToString(sum[:])})
	}
	encoded, _ := json.Marshal(m)
	text := string(encoded)
	if c.next(8) == 7 {
		text = c.damage(text)
	}
	sum := sha256.Sum256([]byte(text))
	out = append(out, archiveEntry{"manifest.json", text, tar.TypeReg},
		archiveEntry{"manifest.sha256", hex.EncodeToString(sum[:]), tar.TypeReg})
	for range c.next(4) {
		i := c.next(len(out))
		switch k := c.next(len(out)); c.next(8) {
		case 0, 1:
			out[i], out[k] = out[k], out[i]
		case 2:
			out[i].name = "./" + out[i].name
		case 3:
			out[i].text = c.damage(out[i].text)
		case 4:
			out[i].kind = "015g"[k%4] // a file, a link, a folder, a header
		case 5:
			out = slices.Insert(out, k, out[i])
		default:
			out = slices.Delete(out, i, i+1)
		}
	}
	return out
}

// packed is a gzip stream of a text.
func packed(text []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	_, _ = w.Write(text)
	_ = w.Close()
	return out.Bytes()
}

// assembled is an archive of entries with damage.
func (c *chosen) assembled() []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range c.entries() {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Size: int64(len(e.text)), Mode: 0o600}
		if e.kind != tar.TypeReg {
			h.Size, h.Linkname, e.text = 0, "x", ""
		}
		if w.WriteHeader(h) == nil { // else it cannot be written
			_, _ = io.WriteString(w, e.text)
		}
	}
	_ = w.Close()
	switch c.next(10) {
	case 7:
		out.WriteString(strings.Repeat("\x00", c.next(256)<<10) + "\x01"[:c.next(2)])
	case 8:
		return append(packed(out.Bytes()), byte(c.next(256)))
	case 9:
		return []byte(c.damage(string(packed(out.Bytes()))))
	}
	return packed(out.Bytes())
}

// An import and the verifier, which knows nothing but the page, find the same archives whole, and neither fails.
func FuzzVerified(f *testing.F) {
	whole := chosen(nil)
	f.Add([]byte(nil))
	f.Add(whole.assembled())
	rnd := rand.NewChaCha8([32]byte{4})
	for range 20 {
		data := make([]byte, 30)
		_, _ = rnd.Read(data)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		agree(t, data)
		agree(t, packed(data))
		c := chosen(data)
		agree(t, c.assembled())
	})
}

// The same with many archives at once.
func TestVerified(t *testing.T) {
	t.Parallel()
	rnd := rand.NewChaCha8([32]byte{5})
	whole := 0
	for range 600 {
		data := make([]byte, 40)
		_, _ = rnd.Read(data)
		c := chosen(data)
		text := c.assembled()
		agree(t, text)
		if _, err := readable(t, text); err == nil {
			whole++
		}
	}
	if whole < 30 || whole > 300 {
		t.Errorf("%d archives of 600 are whole", whole)
	}
}
