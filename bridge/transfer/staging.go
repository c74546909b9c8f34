package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/record"
	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
)

const (
	// importsFolder has the imports that are under way, in the CLI's state directory: a rename moves a session from
	// there to the CLI's sessions.
	importsFolder = "copilot-grpc-imports"
	// staleAfter is the age of a folder in importsFolder that a killed process has left.
	staleAfter = 24 * time.Hour
)

// staging is the folder of an import. It has the parts of the archive until place moves the session's folder away.
type staging struct {
	home   *os.Root
	name   string   // in home
	folder *os.Root // the same
	// history reports that the archive has a record of the CLI, of the session origin.
	history bool
	origin  string
}

// newStaging makes a folder in the CLI's state directory.
func newStaging(home string) (_ *staging, err error) {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(home)
	if err != nil {
		return nil, err
	}
	s := &staging{home: root, name: path.Join(importsFolder, rand.Text())}
	s.sweep()
	if err = root.MkdirAll(s.name, 0o700); err == nil {
		s.folder, err = root.OpenRoot(s.name)
	}
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// sweep removes what killed processes have left.
func (s *staging) sweep() {
	entries, _ := fs.ReadDir(s.home.FS(), importsFolder)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > staleAfter {
			_ = s.home.RemoveAll(path.Join(importsFolder, e.Name()))
		}
	}
}

// remove removes the folder with its content.
func (s *staging) remove() error {
	var err error
	if s.folder != nil {
		err = s.folder.Close()
	}
	return errors.Join(err, s.home.RemoveAll(s.name), s.home.Close())
}

// unpack reads an archive and checks that it has the parts of a session. checkJournal may refuse the size of its
// journal.
func (s *staging) unpack(
	ctx context.Context, from io.Reader, checkJournal func(bytes int64) error,
) (m archive.Manifest, err error) {
	has := map[string]bool{}
	return archive.Unpack(ctx, from, s.folder, limits, func(m archive.Manifest) error {
		for _, p := range m.Parts {
			file, inHistory := strings.CutPrefix(p.Name, historyFolder+"/")
			switch {
			case inHistory && carried(file), p.Name == journalFile:
			case p.Name == stateFile && p.Size <= maxState:
			default:
				return invalid("the part %q does not belong to a session, or is too large", p.Name)
			}
			has[p.Name] = true
			if p.Name == journalFile {
				if err := checkJournal(p.Size); err != nil {
					return err
				}
			}
		}
		if !has[stateFile] || !has[journalFile] {
			return invalid("the part %s or %s is missing", stateFile, journalFile)
		}
		s.history, s.origin = has[path.Join(historyFolder, recordFile)], m.Session
		return nil
	})
}

// prepare makes the CLI's folder of the session with an id of the unpacked files.
func (s *staging) prepare(id, dir, title string, user *runtime.User) error {
	if !s.history {
		return nil
	}
	if err := s.join(recordWriter{id: id, dir: dir}); err != nil {
		return err
	}
	text, err := workspace(id, dir, title)
	if err == nil {
		err = s.folder.WriteFile(path.Join(historyFolder, workspaceFile), text, 0o600)
	}
	if err != nil || user == nil {
		return err
	}
	return fs.WalkDir(s.folder.FS(), historyFolder, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return s.folder.Lchown(name, int(user.UID), int(user.GID))
	})
}

// join makes one file of the files of the record, which a CLI of any version reads.
func (s *staging) join(w recordWriter) error {
	history, err := s.folder.OpenRoot(historyFolder)
	if err != nil {
		return err
	}
	defer history.Close()
	files, err := record.Files(history.FS(), s.origin)
	if errors.Is(err, record.ErrUnknown) {
		return invalid("%v", err)
	}
	if err != nil {
		return err
	}
	to, err := s.folder.OpenFile(recordFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for _, name := range slices.Backward(files) {
		if err = w.addFile(history, name, to); err != nil {
			break
		}
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	if !w.started {
		return invalid("%s has no events", recordFile)
	}
	left, err := fs.ReadDir(history.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range left {
		switch {
		case slices.Contains(files, e.Name()):
			if err := history.Remove(e.Name()); err != nil {
				return err
			}
		case !e.IsDir() && record.Earlier(e.Name()):
			return invalid("the part %q does not belong to the record", e.Name())
		}
	}
	return s.folder.Rename(recordFile, path.Join(historyFolder, recordFile))
}

// workspace returns the content of workspace.yaml. Texts in the form of JSON are YAML too.
func workspace(id, dir, title string) (text []byte, err error) {
	for _, member := range [][2]string{{"id", id}, {"cwd", dir}, {"name", title}} {
		value, err := marshal(member[1])
		if err != nil {
			return nil, err
		}
		if member[1] != "" {
			text = fmt.Appendf(text, "%s: %s\n", member[0], value)
		}
	}
	return text, nil
}

// place moves the session's folder to the CLI's sessions. It returns fs.ErrExist if there is one with the id.
func (s *staging) place(id string, user *runtime.User) error {
	if !s.history {
		return nil
	}
	if err := s.home.Mkdir(sessionsFolder, 0o700); err == nil && user != nil {
		if err := s.home.Lchown(sessionsFolder, int(user.UID), int(user.GID)); err != nil {
			return err
		}
	} else if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	to := path.Join(sessionsFolder, id)
	if _, err := s.home.Lstat(to); err == nil {
		return &fs.PathError{Op: "import", Path: to, Err: fs.ErrExist}
	}
	return s.home.Rename(path.Join(s.name, historyFolder), to)
}
