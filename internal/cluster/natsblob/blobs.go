// Package natsblob keeps snapshots of the CLI's folders of sessions in NATS JetStream, the last one of each session.
//
// A snapshot is a message that describes it: its manifest. Each content is stored once for a session, in pieces, under
// the term of the owner who stored it and its SHA-256 digest. The manifest is replaced by compare-and-set, after the
// contents that it names; then the owner removes the contents of its own and earlier terms that it does not name. A new
// owner first gives the manifest its term. So a snapshot is whole at any time, an owner whose term is over cannot
// replace one, and cannot remove what a later owner stores.
//
// Blobs is safe for concurrent use, and has no goroutines and no locks.
package natsblob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/jsapi"
)

const (
	// defaultPieceBytes is the default of Config.PieceBytes.
	defaultPieceBytes = 256 << 10
	// DefaultMaxFiles, DefaultMaxFileBytes and DefaultMaxBytes are the default limits of a snapshot.
	DefaultMaxFiles     = 10_000
	DefaultMaxFileBytes = 64 << 20
	DefaultMaxBytes     = 256 << 20
)

// ErrTooLarge reports a folder that exceeds a limit.
var ErrTooLarge = errors.New("the folder is too large for a snapshot")

// Config configures blobs.
type Config struct {
	// Stream has the subjects of the blobs.
	Stream jsapi.Stream
	// Subject returns the first tokens of the subjects of a session's blobs, which are its own.
	Subject func(session string) string
	// PieceBytes bounds a message. It must be less than the server's max_payload. The default is 256 KiB.
	PieceBytes int
	// MaxFiles, MaxFileBytes and MaxBytes bound a snapshot. A manifest has about 150 bytes for each file.
	MaxFiles, MaxFileBytes int
	MaxBytes               int64
}

// Blobs are the snapshots in a stream. A session without a snapshot gives fs.ErrNotExist.
type Blobs struct {
	cfg    Config
	stream *jsapi.Stream
}

// File describes a file of a snapshot.
type File struct {
	// Name is the path in the folder, as package fs has it.
	Name string `json:"name"`
	Size int64  `json:"size"`
	// SHA256 is the digest of the content in hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// New returns the snapshots of a stream.
func New(cfg Config) *Blobs {
	cfg.PieceBytes = cmp.Or(cfg.PieceBytes, defaultPieceBytes)
	cfg.MaxFiles = cmp.Or(cfg.MaxFiles, DefaultMaxFiles)
	cfg.MaxFileBytes = cmp.Or(cfg.MaxFileBytes, DefaultMaxFileBytes)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, DefaultMaxBytes)
	return &Blobs{cfg: cfg, stream: &cfg.Stream}
}

// manifest is the stored form of a snapshot.
type manifest struct {
	// Term is that of the owner who made it.
	Term uint64 `json:"term"`
	// Files are the regular files of the folder, ordered by name.
	Files []File `json:"files"`
	// Terms has, for each of the files, the term under which its content is stored.
	Terms []uint64 `json:"terms"`
	// Begun says that a term has begun, and that there is no snapshot yet.
	Begun bool `json:"begun,omitempty"`
}

// content is the subject of a content without the number of the piece, behind that of the session.
type content struct {
	term   uint64
	sha256 string
}

func (c content) String() string { return fmt.Sprintf("content.%d.%s", c.term, c.sha256) }

func manifestOf(subject string) string { return subject + ".manifest" }

// Begin begins the term of an owner, before the owner reads the snapshot: from then on a Put of an earlier term returns
// backend.ErrStale. So does Begin after a later term. The files of the snapshot stay.
func (b *Blobs) Begin(ctx context.Context, session string, term uint64) error {
	subject, err := b.cfg.Subject(session), error(nil)
	for range beginTries {
		if err = b.begin(ctx, subject, term); !errors.Is(err, errChanged) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("snapshot of session %q: %w", session, err)
	}
	return nil
}

// beginTries bounds how often Begin tries again after another owner has replaced the manifest meanwhile.
const beginTries = 4

// errChanged reports that the manifest is not that which was read.
var errChanged = errors.New("another owner has just saved a snapshot")

// begin gives the manifest a term.
func (b *Blobs) begin(ctx context.Context, subject string, term uint64) error {
	m, seq, err := b.read(ctx, subject)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m = manifest{Terms: []uint64{}, Begun: true}
	case err != nil:
		return err
	case m.Term > term:
		return backend.ErrStale
	case m.Term == term:
		return nil
	}
	m.Term = term
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err = b.stream.Publish(ctx, manifestOf(subject), seq, text); errors.Is(err, backend.ErrStale) {
		return errChanged
	}
	return err
}

// Put replaces the snapshot of a session by the regular files of a folder, for the owner of a term. Until Put succeeds the
// old snapshot stays as it is. Put returns backend.ErrStale if a later term has begun or the old snapshot has a later term.
// It stores only content that the old one lacks.
func (b *Blobs) Put(ctx context.Context, session string, term uint64, folder fs.FS) error {
	subject := b.cfg.Subject(session)
	m := manifest{Term: term}
	if err := b.put(ctx, subject, &m, folder); err != nil {
		return fmt.Errorf("snapshot of session %q: %w", session, err)
	}
	_ = b.sweep(ctx, subject, &m) // the next Put removes what stayed
	return nil
}

// put stores the contents that are missing, and then the manifest.
func (b *Blobs) put(ctx context.Context, subject string, m *manifest, folder fs.FS) error {
	old, seq, err := b.read(ctx, subject)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if old.Term > m.Term {
		return backend.ErrStale
	}
	stored := map[string]uint64{} // the term of a content
	for i, f := range old.Files {
		stored[f.SHA256] = old.Terms[i]
	}
	m.Files, m.Terms = []File{}, []uint64{}
	var total int64
	err = fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err = cmp.Or(err, ctx.Err()); err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := b.readFile(folder, name)
		if err != nil {
			return err
		}
		if total += int64(len(data)); total > b.cfg.MaxBytes || len(m.Files) == b.cfg.MaxFiles {
			return fmt.Errorf("%w: more than %d files or %d bytes", ErrTooLarge, b.cfg.MaxFiles, b.cfg.MaxBytes)
		}
		sum := sha256.Sum256(data)
		f := File{Name: name, Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
		term, has := stored[f.SHA256]
		if !has {
			term = m.Term
			if err := b.store(ctx, subject, content{term, f.SHA256}, data); err != nil {
				return fmt.Errorf("%q: %w", name, err)
			}
			stored[f.SHA256] = term
		}
		m.Files, m.Terms = append(m.Files, f), append(m.Terms, term)
		return nil
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = b.stream.Publish(ctx, manifestOf(subject), seq, text)
	return err
}

// readFile reads a file, which may grow meanwhile.
func (b *Blobs) readFile(folder fs.FS, name string) ([]byte, error) {
	f, err := folder.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, int64(b.cfg.MaxFileBytes)+1))
	if err == nil && len(data) > b.cfg.MaxFileBytes {
		err = fmt.Errorf("%w: %q has more than %d bytes", ErrTooLarge, name, b.cfg.MaxFileBytes)
	}
	return data, err
}

// store stores a content. Pieces that an earlier attempt has stored stay.
func (b *Blobs) store(ctx context.Context, subject string, c content, data []byte) error {
	for i := 0; len(data) > 0; i++ {
		piece := data[:min(len(data), b.cfg.PieceBytes)]
		data = data[len(piece):]
		_, err := b.stream.Publish(ctx, fmt.Sprintf("%s.%s.%d", subject, c, i), 0, piece)
		if err != nil && !errors.Is(err, backend.ErrStale) {
			return err
		}
	}
	return nil
}

// read reads and checks a session's manifest, and returns the number of its message.
func (b *Blobs) read(ctx context.Context, subject string) (m manifest, seq uint64, err error) {
	last, err := b.stream.Last(ctx, manifestOf(subject))
	if err != nil {
		return manifest{}, 0, err
	}
	if last.Seq == 0 {
		return manifest{}, 0, fs.ErrNotExist
	}
	if err = json.Unmarshal(last.Data, &m); err == nil {
		err = m.check()
	}
	if err != nil {
		return manifest{}, 0, fmt.Errorf("%w manifest: %w", segment.ErrDamaged, err)
	}
	return m, last.Seq, nil
}

// snapshot reads the manifest of a session that has a snapshot.
func (b *Blobs) snapshot(ctx context.Context, subject string) (manifest, error) {
	m, _, err := b.read(ctx, subject)
	if err == nil && m.Begun {
		return manifest{}, fs.ErrNotExist
	}
	return m, err
}

// check refuses names and digests that no Put stores: they become paths and subjects.
func (m *manifest) check() error {
	if len(m.Terms) != len(m.Files) {
		return fmt.Errorf("%d files have %d terms", len(m.Files), len(m.Terms))
	}
	for i, f := range m.Files {
		sum, err := hex.DecodeString(f.SHA256)
		if err != nil || len(sum) != sha256.Size || f.SHA256 != strings.ToLower(f.SHA256) {
			return fmt.Errorf("%q is not a digest", f.SHA256)
		}
		if !fs.ValidPath(f.Name) || f.Name == "." || f.Size < 0 || m.Terms[i] > m.Term {
			return fmt.Errorf("file %q of %d bytes in term %d", f.Name, f.Size, m.Terms[i])
		}
		if i > 0 && m.Files[i-1].Name >= f.Name {
			return fmt.Errorf("file %q is not behind %q", f.Name, m.Files[i-1].Name)
		}
	}
	return nil
}

// sweep removes earlier manifests, and the contents of terms up to the manifest's that it does not name.
func (b *Blobs) sweep(ctx context.Context, subject string, m *manifest) error {
	named := map[string]bool{}
	for i, f := range m.Files {
		named[content{m.Terms[i], f.SHA256}.String()] = true
	}
	last, err := b.stream.Last(ctx, manifestOf(subject))
	if err != nil {
		return err
	}
	if err := b.stream.Purge(ctx, manifestOf(subject), last.Seq); err != nil {
		return err
	}
	stream, err := b.stream.JetStream.Stream(ctx, b.stream.Name)
	if err != nil {
		return err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subject+".content.>"))
	if err != nil {
		return err
	}
	for name := range info.State.Subjects {
		c, ok := parseContent(strings.TrimPrefix(name, subject+"."))
		if !ok || c.term > m.Term || named[c.String()] {
			continue
		}
		err = errors.Join(err, b.stream.Purge(ctx, name, 0))
	}
	return err
}

// parseContent parses the subject of a piece, behind that of the session.
func parseContent(name string) (content, bool) {
	parts := strings.Split(name, ".")
	if len(parts) != 4 {
		return content{}, false
	}
	term, err := strconv.ParseUint(parts[1], 10, 64)
	return content{term, parts[2]}, err == nil
}

// List returns the files of the snapshot of a session, ordered by name.
func (b *Blobs) List(ctx context.Context, session string) ([]File, error) {
	m, err := b.snapshot(ctx, b.cfg.Subject(session))
	if err != nil {
		return nil, fmt.Errorf("snapshot of session %q: %w", session, err)
	}
	return m.Files, nil
}

// Get calls write for each file of the snapshot, in order. A content is read whole, and checked, before write is called.
func (b *Blobs) Get(ctx context.Context, session string, write func(f File, content io.Reader) error) error {
	subject := b.cfg.Subject(session)
	m, err := b.snapshot(ctx, subject)
	for i := 0; err == nil && i < len(m.Files); i++ {
		var data []byte
		if data, err = b.load(ctx, subject, content{m.Terms[i], m.Files[i].SHA256}, m.Files[i]); err == nil {
			err = write(m.Files[i], bytes.NewReader(data))
		}
	}
	if err != nil {
		return fmt.Errorf("snapshot of session %q: %w", session, err)
	}
	return nil
}

// load reads a content.
func (b *Blobs) load(ctx context.Context, subject string, c content, f File) ([]byte, error) {
	if f.Size > int64(b.cfg.MaxFileBytes) {
		return nil, fmt.Errorf("%w: %q has %d bytes", ErrTooLarge, f.Name, f.Size)
	}
	data := make([]byte, 0, min(f.Size, math.MaxInt32))
	for i := 0; int64(len(data)) < f.Size; i++ {
		piece, err := b.stream.Last(ctx, fmt.Sprintf("%s.%s.%d", subject, c, i))
		if err != nil {
			return nil, err
		}
		if len(piece.Data) == 0 {
			break
		}
		data = append(data, piece.Data...)
	}
	if sum := sha256.Sum256(data); int64(len(data)) != f.Size || hex.EncodeToString(sum[:]) != f.SHA256 {
		return nil, fmt.Errorf("%q in a snapshot: %w", f.Name, segment.ErrDamaged)
	}
	return data, nil
}

// Delete removes the snapshot of a session with all its content. A missing one is no error.
func (b *Blobs) Delete(ctx context.Context, session string) error {
	if err := b.stream.Purge(ctx, b.cfg.Subject(session)+".>", 0); err != nil {
		return fmt.Errorf("snapshot of session %q: %w", session, err)
	}
	return nil
}
