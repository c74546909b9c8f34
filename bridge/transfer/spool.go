package transfer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
)

// spool is a temporary file with the parts of an archive, one after the other. A session is copied into it while the
// session rests, so that a slow reader of the archive does not keep the session from its work.
type spool struct {
	file  *os.File
	size  int64
	parts []archive.Part
}

func newSpool() (*spool, error) {
	file, err := os.CreateTemp("", "copilot-grpc-export-")
	if err != nil {
		return nil, err
	}
	return &spool{file: file}, nil
}

// remove deletes the file.
func (s *spool) remove() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}

// add appends a part whose content is what write writes.
func (s *spool) add(name string, write func(io.Writer) error) error {
	if len(s.parts) == maxParts {
		return tooMuch("archive_files", "the session has more than %d files", maxParts)
	}
	digest := sha256.New()
	out := &limited{to: io.MultiWriter(s.file, digest), left: maxBytes - s.size}
	if err := write(out); err != nil {
		return err
	}
	size := maxBytes - s.size - out.left
	s.parts = append(s.parts, archive.Part{Name: name, Size: size, SHA256: hex.EncodeToString(digest.Sum(nil))})
	s.size += size
	return nil
}

// pack writes the archive to another spool's file and returns its digest. It leaves the file at its beginning.
func (s *spool) pack(m archive.Manifest, into *spool) (digest string, err error) {
	m.Parts = s.parts
	sum := sha256.New()
	w, err := archive.NewWriter(io.MultiWriter(into.file, sum), m)
	if err != nil {
		return "", err
	}
	var at int64
	for _, p := range s.parts {
		if err := w.Add(p.Name, io.NewSectionReader(s.file, at, p.Size)); err != nil {
			return "", err
		}
		at += p.Size
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	if into.size, err = into.file.Seek(0, io.SeekCurrent); err != nil {
		return "", err
	}
	_, err = into.file.Seek(0, io.SeekStart)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// limited refuses what exceeds the size of an archive.
type limited struct {
	to   io.Writer
	left int64
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if int64(len(p)) > l.left {
		return 0, tooMuch("archive_bytes", "the session has more than %d bytes", maxBytes)
	}
	n, err := l.to.Write(p)
	l.left -= int64(n)
	return n, err
}

// errNoFile reports that the CLI has no folder of a session, because the session was never used.
var errNoFile = errors.New("the CLI has no files of the session")
