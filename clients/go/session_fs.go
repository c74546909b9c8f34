package copilot

import (
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

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

// defaultMode is that of files and directories for which the CLI names none.
const (
	defaultFileMode = 0o600
	defaultDirMode  = 0o700
)

func mode(m *int64, otherwise fs.FileMode) fs.FileMode {
	if m == nil {
		return otherwise
	}
	return fs.FileMode(*m) & fs.ModePerm
}

// fsError is an error in the CLI's form; nil is none.
func fsError(err error) *cliv1.SessionFsError {
	if err == nil {
		return nil
	}
	text := err.Error()
	code := cliv1.SessionFsErrorCode_SESSION_FS_ERROR_CODE_UNKNOWN
	if errors.Is(err, fs.ErrNotExist) {
		code = cliv1.SessionFsErrorCode_SESSION_FS_ERROR_CODE_ENOENT
	}
	return &cliv1.SessionFsError{Code: code, Message: &text}
}

// handlers answer the callbacks of a session's file system.
func (s *SessionFS) handlers() []Handler {
	return append(append(s.reading(), s.writing()...), s.database()...)
}

func (s *SessionFS) reading() []Handler {
	files := s.Files
	return []Handler{
		Handle(func(_ context.Context,
			r *cliv1.CallbackSessionFsServiceReadFileRequest) (*cliv1.CallbackSessionFsServiceReadFileResponse, error) {
			data, err := files.ReadFile(r.GetPath())
			return &cliv1.CallbackSessionFsServiceReadFileResponse{Content: strings.ToValidUTF8(string(data), "\uFFFD"),
				Error: fsError(err)}, nil
		}),
		Handle(func(_ context.Context,
			r *cliv1.CallbackSessionFsServiceReadFileBytesRequest) (*cliv1.CallbackSessionFsServiceReadFileBytesResponse, error) {
			data, err := files.ReadFile(r.GetPath())
			return &cliv1.CallbackSessionFsServiceReadFileBytesResponse{Content: base64.StdEncoding.EncodeToString(data), Error: fsError(err)}, nil
		}),
		Handle(func(_ context.Context,
			r *cliv1.CallbackSessionFsServiceExistsRequest) (*cliv1.CallbackSessionFsServiceExistsResponse, error) {
			_, err := files.Stat(r.GetPath())
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			return &cliv1.CallbackSessionFsServiceExistsResponse{Exists: err == nil}, nil
		}),
		Handle(func(_ context.Context,
			r *cliv1.CallbackSessionFsServiceStatRequest) (*cliv1.CallbackSessionFsServiceStatResponse, error) {
			info, err := files.Stat(r.GetPath())
			if err != nil {
				none := timestamppb.New(time.Unix(0, 0)) // the CLI wants one all the same
				return &cliv1.CallbackSessionFsServiceStatResponse{Mtime: none, Birthtime: none,
					Error: fsError(err)}, nil
			}
			at := timestamppb.New(info.ModTime())
			return &cliv1.CallbackSessionFsServiceStatResponse{
				IsFile: info.Mode().IsRegular(), IsDirectory: info.IsDir(), Size: info.Size(), Mtime: at, Birthtime: at,
			}, nil
		}),
		Handle(func(_ context.Context,
			r *cliv1.CallbackSessionFsServiceReaddirRequest) (*cliv1.CallbackSessionFsServiceReaddirResponse, error) {
			entries, err := files.ReadDir(r.GetPath())
			out := &cliv1.CallbackSessionFsServiceReaddirResponse{Error: fsError(err)}
			for _, e := range entries {
				out.Entries = append(out.Entries, e.Name())
			}
			return out, nil
		}),
		Handle(func(_ context.Context,
			r *cliv1.CallbackSessionFsServiceReaddirWithTypesRequest) (*cliv1.CallbackSessionFsServiceReaddirWithTypesResponse, error) {
			entries, err := files.ReadDir(r.GetPath())
			out := &cliv1.CallbackSessionFsServiceReaddirWithTypesResponse{Error: fsError(err)}
			for _, e := range entries {
				kind := cliv1.SessionFsReaddirWithTypesEntryType_SESSION_FS_READDIR_WITH_TYPES_ENTRY_TYPE_FILE
				if e.IsDir() {
					kind = cliv1.SessionFsReaddirWithTypesEntryType_SESSION_FS_READDIR_WITH_TYPES_ENTRY_TYPE_DIRECTORY
				}
				entry := &cliv1.SessionFsReaddirWithTypesEntry{Name: e.Name(), EntryType: kind}
				out.Entries = append(out.Entries, entry)
			}
			return out, nil
		}),
	}
}

func (s *SessionFS) writing() []Handler {
	files := s.Files
	return []Handler{
		Handle(func(_ context.Context,
			r *cliv1.CallbackSessionFsServiceWriteFileRequest) (*cliv1.CallbackSessionFsServiceWriteFileResponse,
			error) {
			err := files.WriteFile(r.GetPath(), []byte(r.GetContent()), mode(r.Mode, defaultFileMode))
			return &cliv1.CallbackSessionFsServiceWriteFileResponse{Value: fsError(err)}, nil
		}),
		Handle(func(_ context.Context,
			r *cliv1.CallbackSessionFsServiceWriteFileBytesRequest) (*cliv1.CallbackSessionFsServiceWriteFileBytesResponse, error) {
			data, err := base64.StdEncoding.DecodeString(r.GetContent())
			if err == nil {
				err = files.WriteFile(r.GetPath(), data, mode(r.Mode, defaultFileMode))
			}
			return &cliv1.CallbackSessionFsServiceWriteFileBytesResponse{Value: fsError(err)}, nil
		}),
		Handle(func(_ context.Context,
			r *cliv1.CallbackSessionFsServiceAppendFileRequest) (*cliv1.CallbackSessionFsServiceAppendFileResponse,
			error) {
			err := files.AppendFile(r.GetPath(), []byte(r.GetContent()), mode(r.Mode, defaultFileMode))
			return &cliv1.CallbackSessionFsServiceAppendFileResponse{Value: fsError(err)}, nil
		}),
		Handle(func(_ context.Context,
			r *cliv1.CallbackSessionFsServiceMkdirRequest) (*cliv1.CallbackSessionFsServiceMkdirResponse, error) {
			err := files.Mkdir(r.GetPath(), r.GetRecursive(), mode(r.Mode, defaultDirMode))
			return &cliv1.CallbackSessionFsServiceMkdirResponse{Value: fsError(err)}, nil
		}),
		Handle(func(_ context.Context,
			r *cliv1.CallbackSessionFsServiceRenameRequest) (*cliv1.CallbackSessionFsServiceRenameResponse, error) {
			return &cliv1.CallbackSessionFsServiceRenameResponse{Value: fsError(files.Rename(r.GetSrc(),
				r.GetDest()))}, nil
		}),
		Handle(func(_ context.Context,
			r *cliv1.CallbackSessionFsServiceRmRequest) (*cliv1.CallbackSessionFsServiceRmResponse, error) {
			err := files.Remove(r.GetPath(), r.GetRecursive())
			if r.GetForce() && errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return &cliv1.CallbackSessionFsServiceRmResponse{Value: fsError(err)}, nil
		}),
	}
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

// relative is an absolute path of a session's file system, relative to its root.
func relative(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	return name
}

// DirFS is a [FileSystem] in a directory of this machine, which its paths cannot leave.
type DirFS struct{ root *os.Root }

// OpenDirFS opens a directory as a file system. The caller must Close it.
func OpenDirFS(dir string) (*DirFS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &DirFS{root}, nil
}

// Close gives the directory up.
func (d *DirFS) Close() error { return d.root.Close() }

// ReadFile implements [FileSystem].
func (d *DirFS) ReadFile(name string) ([]byte, error) { return d.root.ReadFile(relative(name)) }

// WriteFile implements [FileSystem].
func (d *DirFS) WriteFile(name string, data []byte, mode fs.FileMode) error {
	return d.root.WriteFile(relative(name), data, mode)
}

// AppendFile implements [FileSystem].
func (d *DirFS) AppendFile(name string, data []byte, mode fs.FileMode) error {
	name = relative(name)
	if err := d.root.MkdirAll(path.Dir(name), defaultDirMode); err != nil {
		return err
	}
	f, err := d.root.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		_ = f.Close() // the first error counts
		return err
	}
	return f.Close()
}

// Stat implements [FileSystem].
func (d *DirFS) Stat(name string) (fs.FileInfo, error) { return d.root.Stat(relative(name)) }

// Mkdir implements [FileSystem].
func (d *DirFS) Mkdir(name string, recursive bool, mode fs.FileMode) error {
	if recursive {
		return d.root.MkdirAll(relative(name), mode)
	}
	return d.root.Mkdir(relative(name), mode)
}

// ReadDir implements [FileSystem].
func (d *DirFS) ReadDir(name string) ([]fs.DirEntry, error) {
	return fs.ReadDir(d.root.FS(), relative(name))
}

// Rename implements [FileSystem].
func (d *DirFS) Rename(from, to string) error { return d.root.Rename(relative(from), relative(to)) }

// Remove implements [FileSystem].
func (d *DirFS) Remove(name string, recursive bool) error {
	name = relative(name)
	if !recursive {
		return d.root.Remove(name)
	}
	if _, err := d.root.Lstat(name); err != nil {
		return err
	}
	return d.root.RemoveAll(name)
}
