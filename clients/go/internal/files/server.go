// Package files serves the callbacks of a session's file system, and has a file system in a directory.
package files

import (
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// FileSystem is copilot.FileSystem.
type FileSystem interface {
	ReadFile(path string) ([]byte, error)
	WriteFile(path string, data []byte, mode fs.FileMode) error
	AppendFile(path string, data []byte, mode fs.FileMode) error
	Stat(path string) (fs.FileInfo, error)
	Mkdir(path string, recursive bool, mode fs.FileMode) error
	ReadDir(path string) ([]fs.DirEntry, error)
	Rename(from, to string) error
	Remove(path string, recursive bool) error
}

// Server answers callbacks from a file system. Its methods are the handlers.
type Server struct{ Files FileSystem }

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

// ReadFile answers sessionFs.readFile.
func (s Server) ReadFile(
	_ context.Context, r *cliv1.CallbackSessionFsServiceReadFileRequest,
) (*cliv1.CallbackSessionFsServiceReadFileResponse, error) {
	data, err := s.Files.ReadFile(r.GetPath())
	return &cliv1.CallbackSessionFsServiceReadFileResponse{Content: strings.ToValidUTF8(string(data), "\uFFFD"),
		Error: fsError(err)}, nil
}

// ReadFileBytes answers sessionFs.readFileBytes.
func (s Server) ReadFileBytes(
	_ context.Context, r *cliv1.CallbackSessionFsServiceReadFileBytesRequest,
) (*cliv1.CallbackSessionFsServiceReadFileBytesResponse, error) {
	data, err := s.Files.ReadFile(r.GetPath())
	return &cliv1.CallbackSessionFsServiceReadFileBytesResponse{
		Content: base64.StdEncoding.EncodeToString(data), Error: fsError(err),
	}, nil
}

// Exists answers sessionFs.exists.
func (s Server) Exists(
	_ context.Context, r *cliv1.CallbackSessionFsServiceExistsRequest,
) (*cliv1.CallbackSessionFsServiceExistsResponse, error) {
	_, err := s.Files.Stat(r.GetPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &cliv1.CallbackSessionFsServiceExistsResponse{Exists: err == nil}, nil
}

// Stat answers sessionFs.stat.
func (s Server) Stat(
	_ context.Context, r *cliv1.CallbackSessionFsServiceStatRequest,
) (*cliv1.CallbackSessionFsServiceStatResponse, error) {
	info, err := s.Files.Stat(r.GetPath())
	if err != nil {
		none := timestamppb.New(time.Unix(0, 0)) // the CLI wants one all the same
		return &cliv1.CallbackSessionFsServiceStatResponse{Mtime: none, Birthtime: none,
			Error: fsError(err)}, nil
	}
	at := timestamppb.New(info.ModTime())
	return &cliv1.CallbackSessionFsServiceStatResponse{
		IsFile: info.Mode().IsRegular(), IsDirectory: info.IsDir(), Size: info.Size(), Mtime: at, Birthtime: at,
	}, nil
}

// Readdir answers sessionFs.readdir.
func (s Server) Readdir(
	_ context.Context, r *cliv1.CallbackSessionFsServiceReaddirRequest,
) (*cliv1.CallbackSessionFsServiceReaddirResponse, error) {
	entries, err := s.Files.ReadDir(r.GetPath())
	out := &cliv1.CallbackSessionFsServiceReaddirResponse{Error: fsError(err)}
	for _, e := range entries {
		out.Entries = append(out.Entries, e.Name())
	}
	return out, nil
}

// ReaddirWithTypes answers sessionFs.readdirWithTypes.
func (s Server) ReaddirWithTypes(
	_ context.Context, r *cliv1.CallbackSessionFsServiceReaddirWithTypesRequest,
) (*cliv1.CallbackSessionFsServiceReaddirWithTypesResponse, error) {
	entries, err := s.Files.ReadDir(r.GetPath())
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
}

// WriteFile answers sessionFs.writeFile.
func (s Server) WriteFile(
	_ context.Context, r *cliv1.CallbackSessionFsServiceWriteFileRequest,
) (*cliv1.CallbackSessionFsServiceWriteFileResponse, error) {
	err := s.Files.WriteFile(r.GetPath(), []byte(r.GetContent()), mode(r.Mode, defaultFileMode))
	return &cliv1.CallbackSessionFsServiceWriteFileResponse{Value: fsError(err)}, nil
}

// WriteFileBytes answers sessionFs.writeFileBytes.
func (s Server) WriteFileBytes(
	_ context.Context, r *cliv1.CallbackSessionFsServiceWriteFileBytesRequest,
) (*cliv1.CallbackSessionFsServiceWriteFileBytesResponse, error) {
	data, err := base64.StdEncoding.DecodeString(r.GetContent())
	if err == nil {
		err = s.Files.WriteFile(r.GetPath(), data, mode(r.Mode, defaultFileMode))
	}
	return &cliv1.CallbackSessionFsServiceWriteFileBytesResponse{Value: fsError(err)}, nil
}

// AppendFile answers sessionFs.appendFile.
func (s Server) AppendFile(
	_ context.Context, r *cliv1.CallbackSessionFsServiceAppendFileRequest,
) (*cliv1.CallbackSessionFsServiceAppendFileResponse, error) {
	err := s.Files.AppendFile(r.GetPath(), []byte(r.GetContent()), mode(r.Mode, defaultFileMode))
	return &cliv1.CallbackSessionFsServiceAppendFileResponse{Value: fsError(err)}, nil
}

// Mkdir answers sessionFs.mkdir.
func (s Server) Mkdir(
	_ context.Context, r *cliv1.CallbackSessionFsServiceMkdirRequest,
) (*cliv1.CallbackSessionFsServiceMkdirResponse, error) {
	err := s.Files.Mkdir(r.GetPath(), r.GetRecursive(), mode(r.Mode, defaultDirMode))
	return &cliv1.CallbackSessionFsServiceMkdirResponse{Value: fsError(err)}, nil
}

// Rename answers sessionFs.rename.
func (s Server) Rename(
	_ context.Context, r *cliv1.CallbackSessionFsServiceRenameRequest,
) (*cliv1.CallbackSessionFsServiceRenameResponse, error) {
	return &cliv1.CallbackSessionFsServiceRenameResponse{Value: fsError(s.Files.Rename(r.GetSrc(),
		r.GetDest()))}, nil
}

// Rm answers sessionFs.rm.
func (s Server) Rm(
	_ context.Context, r *cliv1.CallbackSessionFsServiceRmRequest,
) (*cliv1.CallbackSessionFsServiceRmResponse, error) {
	err := s.Files.Remove(r.GetPath(), r.GetRecursive())
	if r.GetForce() && errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return &cliv1.CallbackSessionFsServiceRmResponse{Value: fsError(err)}, nil
}
