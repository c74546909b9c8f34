package login

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/server/identity"
)

// fileVersion is the version of the file's format.
const fileVersion = 1

// file has the logins that survive the process. Only the server's user can read it. The methods of a file without a
// path do nothing.
type file struct {
	path string
	mu   sync.Mutex // orders writes
}

// content is the content of the file.
type content struct {
	Version int              `json:"version"`
	Logins  []identity.Login `json:"logins"`
}

// read returns the logins of the file; none if there is no file.
func (f *file) read() ([]identity.Login, error) {
	if f.path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("logins: %w", err)
	}
	var c content
	if err := json.Unmarshal(text, &c); err != nil || c.Version != fileVersion {
		return nil, fmt.Errorf("logins: %q is damaged or of another version (%d): remove it, which logs out all "+
			"browsers", f.path, c.Version)
	}
	return c.Logins, nil
}

// write replaces the file by the logins of a snapshot, which is taken after the snapshots of earlier writes.
func (f *file) write(snapshot func() []identity.Login) error {
	if f.path == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := json.Marshal(content{fileVersion, snapshot()})
	if err != nil {
		return fmt.Errorf("logins: %w", err)
	}
	if err := replace(f.path, text); err != nil {
		return fmt.Errorf("logins: %w", err)
	}
	return nil
}

// replace replaces a file atomically: after a crash it has the old or the new content.
func replace(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
