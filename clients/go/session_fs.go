package copilot

import (
	"context"
	"io/fs"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/files"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// SessionFS keeps the files of a session in this program: what the CLI would otherwise
// write into its home goes to Files. The session can only be used while a participant with
// it is there; what ends its use, Disconnect or Delete, writes to it too.
type SessionFS struct {
	// The files of this one session. Required.
	Files FileSystem
	// The session's SQLite database; nil: it has none, and the agent no tool for it.
	SQLite SQLite
	// The working directory that the session begins in, an absolute path of Files; default
	// "/".
	InitialDirectory string
	// Where in Files the CLI keeps what it knows of the session; default "/session-state".
	StatePath string
	// Sessions with the same key share a CLI process; default: one for this session alone.
	Key string
}

// FileSystem is a file system with absolute paths that have slashes. A missing file is an
// error that is [fs.ErrNotExist]. Its methods are called from several goroutines.
// [OpenDirFS] makes one of a directory.
type FileSystem interface {
	// ReadFile gives a file's whole content.
	ReadFile(path string) ([]byte, error)
	// WriteFile replaces a file's content. It makes no directories.
	WriteFile(path string, data []byte, mode fs.FileMode) error
	// AppendFile adds to a file, and makes it and its directories if need be.
	AppendFile(path string, data []byte, mode fs.FileMode) error
	// Stat tells about a file or directory.
	Stat(path string) (fs.FileInfo, error)
	// Mkdir makes a directory; with recursive also those above it, and one that is there
	// is no error.
	Mkdir(path string, recursive bool, mode fs.FileMode) error
	// ReadDir lists a directory.
	ReadDir(path string) ([]fs.DirEntry, error)
	// Rename moves a file or directory.
	Rename(from, to string) error
	// Remove removes a file, or with recursive a directory with all that is in it.
	Remove(path string, recursive bool) error
}

// SQLite is the SQLite database of a session.
type SQLite interface {
	// Exists reports whether there is one yet.
	Exists(ctx context.Context) (bool, error)
	// Query runs a statement, or several that give no rows.
	Query(ctx context.Context,
		req *cliv1.CallbackSessionFsServiceSqliteQueryRequest) (*cliv1.CallbackSessionFsServiceSqliteQueryResponse,
		error)
	// Transaction runs statements as one.
	Transaction(ctx context.Context,
		req *cliv1.CallbackSessionFsServiceSqliteTransactionRequest) (*cliv1.CallbackSessionFsServiceSqliteTransactionResponse, error)
}

// message returns the file system's configuration for the server.
func (s *SessionFS) message() *bridgev1.SessionFileSystem {
	m := &bridgev1.SessionFileSystem{
		Key: s.Key, InitialDirectory: s.InitialDirectory, StatePath: s.StatePath, Sqlite: s.SQLite != nil, Binary: true,
	}
	if m.InitialDirectory == "" {
		m.InitialDirectory = "/"
	}
	if m.StatePath == "" {
		m.StatePath = "/session-state"
	}
	return m
}

// handlers answer the callbacks of a session's file system.
func (s *SessionFS) handlers() []Handler {
	f := files.Server{Files: s.Files}
	return append(s.database(),
		Handle(f.ReadFile),
		Handle(f.ReadFileBytes),
		Handle(f.Exists),
		Handle(f.Stat),
		Handle(f.Readdir),
		Handle(f.ReaddirWithTypes),
		Handle(f.WriteFile),
		Handle(f.WriteFileBytes),
		Handle(f.AppendFile),
		Handle(f.Mkdir),
		Handle(f.Rename),
		Handle(f.Rm),
	)
}

func (s *SessionFS) database() []Handler {
	if s.SQLite == nil {
		return nil
	}
	return []Handler{
		Handle(func(ctx context.Context,
			_ *cliv1.CallbackSessionFsServiceSqliteExistsRequest) (*cliv1.CallbackSessionFsServiceSqliteExistsResponse,
			error) {
			exists, err := s.SQLite.Exists(ctx)
			return &cliv1.CallbackSessionFsServiceSqliteExistsResponse{Exists: exists}, err
		}),
		Handle(s.SQLite.Query),
		Handle(s.SQLite.Transaction),
	}
}

// DirFS is a [FileSystem] in a directory of this machine, which its paths cannot leave. Close
// closes the directory.
type DirFS = files.Dir

// OpenDirFS opens a directory as a file system. The caller must close it.
func OpenDirFS(dir string) (*DirFS, error) { return files.Open(dir) }
