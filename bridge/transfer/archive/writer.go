package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// Writer writes an archive in constant memory. It is not safe for concurrent use. After an error
// the output is useless.
type Writer struct {
	gzip   *gzip.Writer
	tar    *tar.Writer
	digest string // of the manifest
	parts  []Part // still to come
}

// NewWriter writes the beginning of an archive to w. The manifest names all parts; NewWriter sets
// its format and version. It returns ErrInvalid if a reader would refuse the manifest.
func NewWriter(w io.Writer, m Manifest) (*Writer, error) {
	m.Format, m.Version = Format, Version
	m.Parts = append([]Part{}, m.Parts...)
	if _, err := checkParts(m.Parts, Limits{Bytes: math.MaxInt64, Depth: MaxNameBytes}); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, err
	}
	if len(text) > MaxManifestBytes {
		return nil, fmt.Errorf("%w: the manifest has %d bytes, of at most %d", ErrInvalid, len(text), MaxManifestBytes)
	}
	sum := sha256.Sum256(text)
	compressed := gzip.NewWriter(w)
	out := &Writer{
		gzip: compressed, tar: tar.NewWriter(compressed),
		digest: hex.EncodeToString(sum[:]), parts: m.Parts,
	}
	return out, out.file(manifestName, int64(len(text)), bytes.NewReader(text))
}

// Add writes the next part. The name, size and digest must be those of the manifest.
func (w *Writer) Add(name string, content io.Reader) error {
	if len(w.parts) == 0 || w.parts[0].Name != name {
		return fmt.Errorf("%w: the part %q is not the next one of the manifest", ErrInvalid, name)
	}
	p := w.parts[0]
	w.parts = w.parts[1:]
	digest := sha256.New()
	limited := &io.LimitedReader{R: content, N: p.Size}
	if err := w.file(name, p.Size, io.TeeReader(limited, digest)); err != nil {
		return err
	}
	var more [1]byte // shows a content that has grown
	if n, _ := io.ReadFull(content, more[:]); n != 0 || hex.EncodeToString(digest.Sum(nil)) != p.SHA256 {
		return fmt.Errorf("%w: the content of %q is not that of the manifest", ErrInvalid, name)
	}
	return nil
}

// Close writes the end of the archive. It does not close the underlying writer.
func (w *Writer) Close() error {
	if len(w.parts) > 0 {
		return fmt.Errorf("%w: the part %q was not added", ErrInvalid, w.parts[0].Name)
	}
	if err := w.file(digestName, int64(len(w.digest)), bytes.NewReader([]byte(w.digest))); err != nil {
		return err
	}
	if err := w.tar.Close(); err != nil {
		return err
	}
	return w.gzip.Close()
}

// file writes an entry of the tar archive.
func (w *Writer) file(name string, size int64, content io.Reader) error {
	err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600})
	if err != nil {
		return err
	}
	n, err := io.Copy(w.tar, content)
	if err == nil && n != size {
		err = fmt.Errorf("%w: %q has %d bytes, not %d", ErrInvalid, name, n, size)
	}
	return err
}
