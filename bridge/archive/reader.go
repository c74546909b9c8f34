package archive

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

// entryBytes bounds what an entry takes in the tar archive besides its content: the headers, a long
// name, and the padding.
const entryBytes = 8 << 10

// Read reads an archive in constant memory and calls part for each part, in order. It checks the
// whole manifest before the first call. The content ends with an error if it is not the content
// that the manifest describes; Read then returns that error also if part ignores it. Everything
// that part did counts only if Read returns nil: the end of the archive may be missing or wrong.
// start, if not nil, is called with the manifest before the first part and can refuse it.
//
// Errors match ErrInvalid, ErrVersion or ErrLimit if the archive is at fault; errors of r, of ctx
// and of the functions are returned as they are.
func Read(
	ctx context.Context, r io.Reader, limits Limits, start func(Manifest) error, part func(Part, io.Reader) error,
) (Manifest, error) {
	in := &source{ctx: ctx, from: r}
	m, err := read(in, limits, start, part)
	if err != nil && in.err != nil {
		err = in.err // the archive is not at fault
	}
	return m, err
}

func read(
	in *source, limits Limits, start func(Manifest) error, part func(Part, io.Reader) error,
) (m Manifest, err error) {
	inflated, err := gzip.NewReader(in)
	if err != nil {
		return m, invalid("the gzip stream", err)
	}
	inflated.Multistream(false)
	bounded := &bound{from: inflated, left: MaxManifestBytes + 2*entryBytes}
	entries := tar.NewReader(bounded)
	text, err := small(entries, manifestName, MaxManifestBytes)
	if err != nil {
		return m, err
	}
	if m, err = parse(text, limits); err != nil {
		return m, err
	}
	if start != nil {
		if err := start(m); err != nil {
			return m, err
		}
	}
	for _, p := range m.Parts {
		bounded.left = p.Size + 2*entryBytes
		if err := readPart(entries, p, part); err != nil {
			return m, err
		}
	}
	bounded.left = 4 * entryBytes
	sum := sha256.Sum256(text)
	if got, err := small(entries, digestName, 2*sha256.Size); err != nil {
		return m, err
	} else if string(got) != hex.EncodeToString(sum[:]) {
		return m, fmt.Errorf("%w: the digest of the manifest is wrong", ErrInvalid)
	}
	return m, finish(entries, bounded, in)
}

// readPart reads the next entry, which has to be a part.
func readPart(entries *tar.Reader, p Part, part func(Part, io.Reader) error) error {
	size, err := next(entries, p.Name)
	if err != nil {
		return err
	}
	if size != p.Size {
		return fmt.Errorf("%w: %q has %d bytes, and %d in the manifest", ErrInvalid, p.Name, size, p.Size)
	}
	content := &checked{from: entries, digest: sha256.New(), part: p}
	if err := part(p, content); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, content)
	return err
}

// next reads the header of the next entry, which has to be a regular file of that name.
func next(entries *tar.Reader, name string) (size int64, err error) {
	h, err := entries.Next()
	if err != nil {
		return 0, invalid(fmt.Sprintf("the entry %q", name), err)
	}
	if h.Name != name {
		return 0, fmt.Errorf("%w: the entry %q is in the place of %q", ErrInvalid, h.Name, name)
	}
	if h.Typeflag != tar.TypeReg || h.Linkname != "" {
		return 0, fmt.Errorf("%w: the entry %q is not a regular file", ErrInvalid, name)
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse") {
			return 0, fmt.Errorf("%w: the entry %q is a sparse file", ErrInvalid, name)
		}
	}
	return h.Size, nil
}

// small reads the next entry, which has that name and at most that size.
func small(entries *tar.Reader, name string, limit int64) ([]byte, error) {
	size, err := next(entries, name)
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%w: the entry %q has %d bytes, of at most %d", ErrLimit, name, size, limit)
	}
	text, err := io.ReadAll(entries)
	if err != nil {
		return nil, invalid(fmt.Sprintf("the entry %q", name), err)
	}
	return text, nil
}

// finish checks that nothing follows the last entry.
func finish(entries *tar.Reader, inflated, compressed io.Reader) error {
	if h, err := entries.Next(); err == nil {
		return fmt.Errorf("%w: the entry %q follows the last one", ErrInvalid, h.Name)
	} else if err != io.EOF {
		return invalid("the end of the tar archive", err)
	}
	for _, r := range []io.Reader{inflated, compressed} {
		n, err := io.Copy(io.Discard, io.LimitReader(r, entryBytes))
		if err != nil {
			return invalid("the end", err)
		}
		if n > 0 {
			return fmt.Errorf("%w: data follows the end of the tar archive", ErrInvalid)
		}
	}
	return nil
}

// invalid says what of an archive could not be read.
func invalid(what string, err error) error {
	if errors.Is(err, ErrLimit) {
		return err
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %s: %w", ErrInvalid, what, err)
}
