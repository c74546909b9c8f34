package archive

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// bufferBytes is the size of the reads of an archive.
	bufferBytes = 32 << 10
	// headerBytes bounds what precedes the content of an entry: the padding of the entry before, its header, a long
	// name and the extended attributes of PAX.
	headerBytes = 16 << 10
	// maxPadding bounds the zeros behind the end of the tar archive. GNU tar and bsdtar fill a record of 10 KiB with
	// them by default, and of 1 MiB at most.
	maxPadding = 1 << 20
)

// Read reads an archive in constant memory and calls part for each part, in the order of the file. Everything that part
// did counts only if Read returns nil: the manifest may follow the parts, the content of a part may be wrong, and the
// end of the archive may be missing. SHA256 is empty in the parts of these calls. start, if not nil, is called with the
// manifest as soon as it was read and checked, which is before the first part in the archives of Writer, and can refuse
// the archive.
//
// Errors match ErrInvalid, ErrVersion or ErrLimit if the archive is at fault; errors of r, of ctx and of the functions
// are returned as they are.
func Read(
	ctx context.Context, r io.Reader, limits Limits, start func(Manifest) error, part func(Part, io.Reader) error,
) (Manifest, error) {
	from := &source{ctx: ctx, from: r}
	m, err := read(bufio.NewReaderSize(from, bufferBytes), limits, start, part)
	if err != nil && from.err != nil {
		err = from.err // the archive is not at fault
	}
	return m, err
}

// read is Read. in has no more data than gzip asks for, because it is an io.ByteReader.
func read(
	in *bufio.Reader, limits Limits, start func(Manifest) error, part func(Part, io.Reader) error,
) (m Manifest, err error) {
	inflated, err := gzip.NewReader(in)
	if err != nil {
		return m, invalid("the gzip stream", err)
	}
	inflated.Multistream(false)
	bounded := &bound{from: inflated}
	a := &reading{limits: limits, start: start, part: part, names: newNames(), found: map[string]Part{}}
	a.bounded, a.entries = bounded, tar.NewReader(bounded)
	for {
		bounded.left = headerBytes
		h, err := a.entries.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = a.entry(h)
		} else {
			err = invalid("the header of an entry", err)
		}
		if err != nil {
			return a.manifest, err
		}
	}
	if err := a.complete(); err != nil {
		return a.manifest, err
	}
	return a.manifest, finish(bounded, in)
}

// reading is an archive of which a part was read.
type reading struct {
	limits  Limits
	start   func(Manifest) error
	part    func(Part, io.Reader) error
	entries *tar.Reader
	bounded *bound

	// text is the content of the manifest, and manifest its meaning; text is nil before its entry.
	text     []byte
	manifest Manifest
	// declared has the parts of the manifest by name, found the parts whose entries were read.
	declared, found map[string]Part
	names           *names // of found
	bytes           int64  // the sum of their sizes
	sum             string // the content of manifest.sha256; "" before its entry
	ignored         int    // entries
}

// entry reads an entry. Standard tools add entries of folders and global headers, which have no meaning here.
func (a *reading) entry(h *tar.Header) error {
	if h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeXGlobalHeader {
		if a.ignored++; a.ignored > a.limits.Parts+a.limits.Depth {
			return fmt.Errorf("%w: it has more than %d folders", ErrLimit, a.limits.Parts+a.limits.Depth)
		}
		return nil
	}
	name := strings.TrimPrefix(h.Name, "./") // "tar -c ." adds it
	if err := checkRegular(h, name); err != nil {
		return err
	}
	a.bounded.left = h.Size
	switch {
	case name == manifestName && a.text == nil:
		return a.readManifest(h.Size)
	case name == digestName && a.sum == "":
		text, err := a.small(name, h.Size, 2*sha256.Size)
		if a.sum = string(text); err == nil && a.sum == "" {
			err = fmt.Errorf("%w: the entry %q is empty", ErrInvalid, name)
		}
		return err
	}
	return a.readPart(Part{Name: name, Size: h.Size})
}

// checkRegular checks that an entry is a regular file.
func checkRegular(h *tar.Header, name string) error {
	if h.Typeflag != tar.TypeReg || h.Linkname != "" {
		return fmt.Errorf("%w: the entry %.140q is not a regular file", ErrInvalid, name)
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse") {
			return fmt.Errorf("%w: the entry %.140q is a sparse file", ErrInvalid, name)
		}
	}
	return nil
}

// readManifest reads and checks the manifest.
func (a *reading) readManifest(size int64) (err error) {
	if a.text, err = a.small(manifestName, size, MaxManifestBytes); err != nil {
		return err
	}
	if a.manifest, err = parse(a.text, a.limits); err != nil {
		return err
	}
	a.declared = map[string]Part{}
	for _, p := range a.manifest.Parts {
		a.declared[p.Name] = p
	}
	for _, p := range a.found {
		if err := a.checkPart(p); err != nil {
			return err
		}
	}
	if a.start == nil {
		return nil
	}
	return a.start(a.manifest)
}

// readPart reads the content of a part. Before the manifest was read, the name and the size are within the limits.
func (a *reading) readPart(p Part) error {
	if err := a.names.add(p.Name, a.limits.Depth); err != nil {
		return err
	}
	switch {
	case len(a.found) == a.limits.Parts:
		return fmt.Errorf("%w: it has more than %d parts", ErrLimit, a.limits.Parts)
	case p.Size > a.limits.Bytes-a.bytes:
		return fmt.Errorf("%w: the parts up to %q have more than %d bytes", ErrLimit, p.Name, a.limits.Bytes)
	}
	if a.text != nil {
		if err := a.checkSize(p); err != nil {
			return err
		}
	}
	digest := sha256.New()
	content := &content{from: io.TeeReader(a.entries, digest), name: p.Name}
	if err := a.part(p, content); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, content); err != nil {
		return err
	}
	p.SHA256 = hex.EncodeToString(digest.Sum(nil))
	a.found[p.Name], a.bytes = p, a.bytes+p.Size
	if a.text == nil {
		return nil
	}
	return a.checkPart(p)
}

// checkSize compares a part with the manifest before its content is read.
func (a *reading) checkSize(p Part) error {
	declared, ok := a.declared[p.Name]
	switch {
	case !ok:
		return fmt.Errorf("%w: the manifest has no part %q", ErrInvalid, p.Name)
	case declared.Size != p.Size:
		return fmt.Errorf("%w: %q has %d bytes, and %d in the manifest", ErrInvalid, p.Name, p.Size, declared.Size)
	}
	return nil
}

// checkPart compares a part that was read with the manifest.
func (a *reading) checkPart(p Part) error {
	if err := a.checkSize(p); err != nil {
		return err
	}
	if a.declared[p.Name].SHA256 != p.SHA256 {
		return fmt.Errorf("%w: the digest of %q is wrong", ErrInvalid, p.Name)
	}
	return nil
}

// small reads the content of an entry with at most limit bytes.
func (a *reading) small(name string, size, limit int64) ([]byte, error) {
	if size > limit {
		return nil, fmt.Errorf("%w: the entry %q has %d bytes, of at most %d", ErrLimit, name, size, limit)
	}
	text, err := io.ReadAll(a.entries)
	if err != nil {
		return nil, invalid(fmt.Sprintf("the entry %q", name), err)
	}
	return text, nil
}

// complete checks that the archive has everything that belongs to it.
func (a *reading) complete() error {
	if a.text == nil {
		return fmt.Errorf("%w: the entry %q is missing: the archive must have it at its top", ErrInvalid, manifestName)
	}
	for _, p := range a.manifest.Parts {
		if _, ok := a.found[p.Name]; !ok {
			return fmt.Errorf("%w: the part %q is missing", ErrInvalid, p.Name)
		}
	}
	switch sum := sha256.Sum256(a.text); a.sum {
	case hex.EncodeToString(sum[:]):
		return nil
	case "":
		return fmt.Errorf("%w: the entry %q is missing: the archive was cut off", ErrInvalid, digestName)
	}
	return fmt.Errorf("%w: the digest of the manifest is wrong", ErrInvalid)
}

// finish checks that only padding follows the last entry, and nothing the gzip stream.
func finish(inflated *bound, compressed io.Reader) error {
	inflated.left = maxPadding
	buffer := make([]byte, 4<<10)
	for {
		n, err := inflated.Read(buffer)
		if strings.Trim(string(buffer[:n]), "\x00") != "" {
			return fmt.Errorf("%w: data follows the end of the tar archive", ErrInvalid)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return invalid("the end of the tar archive", err)
		}
	}
	if n, err := io.ReadFull(compressed, buffer[:1]); n > 0 {
		return fmt.Errorf("%w: data follows the end of the gzip stream", ErrInvalid)
	} else if err != io.EOF {
		return invalid("the end of the gzip stream", err)
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
