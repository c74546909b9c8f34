package backend

import (
	"context"
	"io"
	"io/fs"
)

// Snapshot describes a copy of the CLI's folder of a session.
type Snapshot struct {
	// Term is that of the owner who made it.
	Term uint64 `json:"term"`
	// Epoch and Seq are the journal's position at which it was made.
	Epoch uint64 `json:"epoch"`
	Seq   uint64 `json:"seq"`
	// Files are the regular files, ordered by name. Put sets them.
	Files []File `json:"files"`
}

// File describes a file of a snapshot.
type File struct {
	// Name is the path in the folder, as package fs has it.
	Name string `json:"name"`
	Size int64  `json:"size"`
	// SHA256 is the digest of the content in hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// Blobs keeps the last snapshot of each session. A session without one gives fs.ErrNotExist. It
// is safe for concurrent use.
type Blobs interface {
	// Begin begins the term of an owner, before the owner reads the snapshot: from then on a Put of an earlier term
	// returns ErrStale. So does Begin after a later term. The files of the snapshot stay.
	Begin(ctx context.Context, session string, term uint64) error
	// Put replaces the snapshot of a session by the regular files of a folder. Until Put succeeds
	// the old snapshot stays as it is. Put returns ErrStale if a later term has begun or the old
	// one has a later term. Content that did not change need not be stored again.
	Put(ctx context.Context, session string, s Snapshot, folder fs.FS) (Snapshot, error)
	// List describes the snapshot of a session.
	List(ctx context.Context, session string) (Snapshot, error)
	// Get calls write for each file of the snapshot, in order. The content ends with an error,
	// and so does Get, if it is not what Put stored; the caller then discards what it wrote.
	Get(ctx context.Context, session string, write func(f File, content io.Reader) error) (Snapshot, error)
	// Delete removes the snapshot of a session with all its content. A missing one is no error.
	Delete(ctx context.Context, session string) error
}
