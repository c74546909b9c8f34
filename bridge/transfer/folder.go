package transfer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/copilot-grpc/copilot-grpc/bridge/session/record"
)

const (
	// sessionsFolder has a folder for each session, in the CLI's state directory.
	sessionsFolder = "session-state"
	recordFile     = record.File
	workspaceFile  = "workspace.yaml"
)

// carried reports whether an archive may have a file of the CLI's folder of a session. The CLI's locks, databases and
// workspace.yaml stay where they are; an import makes a new workspace.yaml.
func carried(name string) bool { return beside(name) || name == recordFile || record.Earlier(name) }

// beside reports whether an archive has a file that does not belong to the record.
func beside(name string) bool {
	folder, _, inside := strings.Cut(name, "/")
	switch folder {
	case "plan.md":
		return !inside
	case "checkpoints", "files", "research":
		return inside
	}
	return false
}

// copyFolder adds the files of the CLI's folder of a session to a spool, and returns errNoFile if there is no folder. It
// returns record.ErrUnknown if it cannot tell which files the record consists of.
// It does not follow links and reads regular files only: the agent's shells may have written to the folder.
func copyFolder(home, id string, into *spool) error {
	root, err := os.OpenRoot(home)
	if errors.Is(err, fs.ErrNotExist) {
		return errNoFile
	}
	if err != nil {
		return err
	}
	defer root.Close()
	name := path.Join(sessionsFolder, id)
	switch info, err := root.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
		return errNoFile
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", name)
	}
	folder, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer folder.Close()
	files, err := record.Files(folder.FS(), id)
	if err != nil {
		return err
	}
	return fs.WalkDir(folder.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir():
			return err
		case !d.Type().IsRegular() || !beside(name) && !slices.Contains(files, name):
			return nil
		}
		return copyFile(folder, name, into)
	})
}

// copyFile adds a regular file to a spool.
func copyFile(folder *os.Root, name string, into *spool) error {
	file, err := folder.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not block the server
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	return into.add(path.Join(historyFolder, name), func(w io.Writer) error {
		_, err := io.Copy(w, file)
		return err
	})
}
