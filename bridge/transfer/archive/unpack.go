package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// Unpack reads an archive into an empty folder, which stays within root whatever the archive
// contains. The files have mode 0600 and folders 0700. start is as for Read. After an error Unpack
// has removed everything that it wrote; if that failed as well, the error says so. It is not safe
// for concurrent use on one folder.
func Unpack(
	ctx context.Context, r io.Reader, root *os.Root, limits Limits, start func(Manifest) error,
) (m Manifest, err error) {
	if entries, err := fs.ReadDir(root.FS(), "."); err != nil {
		return m, err
	} else if len(entries) > 0 {
		return m, &fs.PathError{Op: "unpack", Path: root.Name(), Err: fs.ErrExist}
	}
	m, err = Read(ctx, r, limits, start, func(p Part, content io.Reader) error { return write(root, p.Name, content) })
	if err != nil {
		return m, errors.Join(err, empty(root))
	}
	return m, nil
}

// write creates a file.
func write(root *os.Root, name string, content io.Reader) error {
	if folder := path.Dir(name); folder != "." {
		if err := root.MkdirAll(folder, 0o700); err != nil {
			return err
		}
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) { // a file system that ignores more than case
		return fmt.Errorf("%w: the name %q clashes with an earlier one: %w", ErrInvalid, name, err)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// empty removes all files of a folder.
func empty(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, root.RemoveAll(e.Name()))
	}
	return err
}
