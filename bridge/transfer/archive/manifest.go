package archive

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Errors of the format. All errors about the content of an archive match one of them; other errors
// are those of the reader, the writer or the disk.
var (
	// ErrInvalid reports data that is not an archive, is damaged, or breaks a rule of the format.
	ErrInvalid = errors.New("invalid session archive")
	// ErrVersion reports an archive of a later version than this program reads.
	ErrVersion = errors.New("the session archive has a later version")
	// ErrLimit reports an archive that exceeds a limit of its reader.
	ErrLimit = errors.New("the session archive exceeds a limit")
)

const (
	// Format is the value of Manifest.Format.
	Format = "copilot-grpc.session"
	// Version is the version that Writer writes, and the latest one that Unpack accepts.
	Version = 1
	// MaxNameBytes is the length limit of a part's name.
	MaxNameBytes = 512
	// MaxElementBytes is the length limit of each element of a name, as file systems have it.
	MaxElementBytes = 255
	// MaxManifestBytes is the size limit of the manifest.
	MaxManifestBytes = 4 << 20
)

const (
	manifestName = "manifest.json"
	digestName   = "manifest.sha256"
)

// Manifest describes an archive. It is a claim of the archive's author: the sizes, digests and
// names of the parts are checked, the other members are not.
type Manifest struct {
	// Format is always Format; Version is at least 1. Writer sets both.
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Session is the id of the session at its origin.
	Session string `json:"session"`
	// CreatedAt is when the archive was made.
	CreatedAt time.Time `json:"createdAt"`
	// Epoch and Seq are the position of the journal up to which the archive has the session.
	Epoch uint64 `json:"epoch,string"`
	Seq   uint64 `json:"seq,string"`
	// Parts are the files of the archive, in their order.
	Parts []Part `json:"parts"`
}

// Part describes a file of an archive.
type Part struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	// SHA256 is the digest of the content as 64 lower-case hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// Limits bounds the archives that Unpack accepts. A limit of zero permits nothing.
type Limits struct {
	// Bytes limits the size of all parts together, inflated.
	Bytes int64
	// Parts limits the number of parts.
	Parts int
	// Depth limits the elements of a name: "a/b/c" has three.
	Depth int
}

// parse returns the manifest in text, checked against the rules and the limits.
func parse(text []byte, limits Limits) (m Manifest, err error) {
	var raw struct {
		Manifest
		Parts json.RawMessage `json:"parts"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return m, fmt.Errorf("%w: the manifest is not valid JSON: %w", ErrInvalid, err)
	}
	m = raw.Manifest
	if m.Format != Format || m.Version < 1 {
		return m, fmt.Errorf("%w: the manifest has format %q and version %d", ErrInvalid, m.Format, m.Version)
	}
	if m.Version > Version {
		return m, fmt.Errorf("%w: it is %d, and this server reads up to %d", ErrVersion, m.Version, Version)
	}
	if m.Parts, err = parseParts(raw.Parts, limits.Parts); err == nil {
		_, err = checkParts(m.Parts, limits)
	}
	return m, err
}

// parseParts decodes at most that many parts: a small text can name many empty ones.
func parseParts(text []byte, limit int) (parts []Part, err error) {
	in := json.NewDecoder(bytes.NewReader(text))
	if t, err := in.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("%w: the manifest has no list of parts", ErrInvalid)
	}
	for in.More() {
		if len(parts) == limit {
			return nil, fmt.Errorf("%w: it has more than %d parts", ErrLimit, limit)
		}
		var p Part
		if err := in.Decode(&p); err != nil {
			return nil, fmt.Errorf("%w: part %d of the manifest: %w", ErrInvalid, len(parts), err)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// checkParts checks the names, the digests and the sizes of parts, and returns the sum of the sizes.
func checkParts(parts []Part, limits Limits) (total int64, err error) {
	seen := newNames()
	for _, p := range parts {
		if err := seen.add(p.Name, limits.Depth); err != nil {
			return 0, err
		}
		if !isDigest(p.SHA256) {
			return 0, fmt.Errorf("%w: the digest %q of %q is not one", ErrInvalid, p.SHA256, p.Name)
		}
		if p.Size < 0 {
			return 0, fmt.Errorf("%w: the size %d of %q is negative", ErrInvalid, p.Size, p.Name)
		}
		if p.Size > limits.Bytes-total {
			return 0, fmt.Errorf("%w: the parts up to %q have more than %d bytes", ErrLimit, p.Name, limits.Bytes)
		}
		total += p.Size
	}
	return total, nil
}

// isDigest reports whether s is a digest as Part has it.
func isDigest(s string) bool {
	sum, err := hex.DecodeString(s)
	return err == nil && len(sum) == 32 && hex.EncodeToString(sum) == s
}
