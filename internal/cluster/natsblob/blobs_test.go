package natsblob

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/jsapi"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// testBlobs returns blobs in a new stream, with small pieces.
func testBlobs(t testing.TB) *Blobs {
	t.Helper()
	js := natstest.Start(t).JetStream()
	_, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
		Name: "blobs", Subjects: []string{"blob.>"}, AllowDirect: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Stream: jsapi.Stream{JetStream: js, Name: "blobs"}, PieceBytes: 1000, MaxFileBytes: 2 << 20, MaxFiles: 5,
		Subject: func(session string) string { return "blob." + hex.EncodeToString([]byte(session)) },
	})
}

// put puts a snapshot of files: name, content, and so on.
func put(t *testing.T, b *Blobs, term uint64, files ...string) error {
	t.Helper()
	folder := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		folder[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return b.Put(t.Context(), "s", term, folder)
}

// get returns the files of the snapshot.
func get(t *testing.T, b *Blobs) (map[string]string, error) {
	t.Helper()
	got := map[string]string{}
	err := b.Get(t.Context(), "s", func(f File, content io.Reader) error {
		text, err := io.ReadAll(content)
		got[f.Name] = string(text)
		return err
	})
	return got, err
}

// messages counts the messages of a subject.
func messages(t *testing.T, b *Blobs, filter string) (n uint64) {
	t.Helper()
	stream, err := b.stream.JetStream.Stream(t.Context(), b.stream.Name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(b.cfg.Subject("s")+"."+filter))
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range info.State.Subjects {
		n += count
	}
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOnlyNeededContentsAreStored(t *testing.T) {
	t.Parallel()
	b := testBlobs(t)
	large := strings.Repeat("0123456789", 250) // three pieces
	must(t, put(t, b, 1, "a", large, "b", large, "c", "old"))
	if n := messages(t, b, "content.>"); n != 4 {
		t.Errorf("two contents take %d messages, want 4", n)
	}
	must(t, put(t, b, 2, "a", large, "c", "new"))
	if n := messages(t, b, "content.2.>"); n != 1 {
		t.Errorf("the second snapshot stored %d pieces, want 1", n)
	}
	if n, m := messages(t, b, "content.>"), messages(t, b, "manifest"); n != 4 || m != 1 {
		t.Errorf("%d pieces and %d manifests stay, want 4 and 1", n, m)
	}
	if got, err := get(t, b); err != nil || got["a"] != large || got["c"] != "new" || len(got) != 2 {
		t.Errorf("the snapshot has %d files: %v", len(got), err)
	}
	must(t, b.Delete(t.Context(), "s"))
	if n := messages(t, b, ">"); n != 0 {
		t.Errorf("%d messages of a deleted snapshot stay", n)
	}
}

// An owner whose term is over may store contents, but neither replaces the snapshot nor removes what the next owner
// stores for its first one.
func TestEarlierOwnerRemovesNothing(t *testing.T) {
	t.Parallel()
	b, ctx := testBlobs(t), t.Context()
	must(t, put(t, b, 1, "f", "first"))
	subject := b.cfg.Subject("s")
	must(t, b.store(ctx, subject, content{2, strings.Repeat("ab", 32)}, []byte("of the next owner")))
	must(t, put(t, b, 1, "f", "second"))
	if n := messages(t, b, "content.2.>"); n != 1 {
		t.Errorf("%d contents of the next owner stay, want 1", n)
	}
	must(t, put(t, b, 2, "f", "third"))
	if err := put(t, b, 1, "f", "fourth"); !errors.Is(err, backend.ErrStale) {
		t.Errorf("the earlier owner puts: %v", err)
	}
	if got, err := get(t, b); err != nil || got["f"] != "third" {
		t.Errorf("the snapshot has %q, %v", got, err)
	}
}

// What an unfinished Put stored is used by the next one.
func TestUnfinishedPut(t *testing.T) {
	t.Parallel()
	b := testBlobs(t)
	large := strings.Repeat("x", 5000)
	ctx, cancel := context.WithCancel(t.Context())
	folder := fstest.MapFS{"a": {Data: []byte(large)}, "b": {Data: []byte("b")}}
	err := b.Put(ctx, "s", 1, cancelling{folder, cancel})
	if !errors.Is(err, context.Canceled) || messages(t, b, "content.>") == 0 {
		t.Fatalf("the first one ends with %v", err)
	}
	if _, err := b.List(t.Context(), "s"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an unfinished snapshot is listed: %v", err)
	}
	must(t, put(t, b, 1, "a", large, "b", "b"))
	if got, err := get(t, b); err != nil || got["a"] != large {
		t.Errorf("the snapshot: %v", err)
	}
}

// cancelling is a folder that ends the call when b is opened.
type cancelling struct {
	fs.FS

	cancel context.CancelFunc
}

func (c cancelling) Open(name string) (fs.File, error) {
	if name == "b" {
		c.cancel()
	}
	return c.FS.Open(name)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	b := testBlobs(t)
	if err := put(t, b, 1, "f", strings.Repeat("x", 2<<20+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a file that is too large: %v", err)
	}
	if err := put(t, b, 1, "1", "", "2", "", "3", "", "4", "", "5", "", "6", ""); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too many files: %v", err)
	}
	b.cfg.MaxBytes = 10
	if err := put(t, b, 1, "1", "123456", "2", "12345"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too many bytes: %v", err)
	}
}

// A manifest that no Put has made is refused: its names become paths, its digests subjects.
func TestHostileManifests(t *testing.T) {
	t.Parallel()
	b := testBlobs(t)
	must(t, put(t, b, 1, "f", "content", "g", "other"))
	good, _, err := b.read(t.Context(), b.cfg.Subject("s"))
	must(t, err)
	hostile := map[string]func(*manifest){
		"a path above the folder": func(m *manifest) { m.Files[0].Name = "../f" },
		"an absolute path":        func(m *manifest) { m.Files[0].Name = "/f" },
		"the folder itself":       func(m *manifest) { m.Files[0].Name = "." },
		"the same name twice":     func(m *manifest) { m.Files[1].Name = "f" },
		"a wildcard as digest":    func(m *manifest) { m.Files[0].SHA256 = "*" },
		"a digest in capitals":    func(m *manifest) { m.Files[0].SHA256 = strings.ToUpper(m.Files[0].SHA256) },
		"a negative size":         func(m *manifest) { m.Files[0].Size = -1 },
		"a later term":            func(m *manifest) { m.Terms[0] = 2 },
		"too few terms":           func(m *manifest) { m.Terms = m.Terms[:1] },
		"another content":         func(m *manifest) { m.Files[0].SHA256 = m.Files[1].SHA256 },
		"a size that is wrong":    func(m *manifest) { m.Files[0].Size++ },
		"a content that is lost":  func(m *manifest) { m.Files[0].SHA256 = strings.Repeat("0", 64) },
	}
	for name, change := range hostile {
		m := manifest{Term: good.Term, Terms: append([]uint64(nil), good.Terms...)}
		m.Files = append([]File(nil), good.Files...)
		change(&m)
		text, err := json.Marshal(m)
		must(t, err)
		last, err := b.stream.Last(t.Context(), manifestOf(b.cfg.Subject("s")))
		must(t, err)
		_, err = b.stream.Publish(t.Context(), manifestOf(b.cfg.Subject("s")), last.Seq, text)
		must(t, err)
		if _, err := get(t, b); !errors.Is(err, segment.ErrDamaged) {
			t.Errorf("%s gives %v", name, err)
		}
	}
}
