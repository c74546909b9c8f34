package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSweepFolders has folders of shims that live, that were killed, and folders that only look
// like theirs: those of killed ones alone are removed.
func TestSweepFolders(t *testing.T) {
	base := t.TempDir()
	t.Setenv("TMPDIR", base)
	if len(base) > maxSocketPath/2 {
		t.Skipf("the folder for temporary files has a long path: %s", base)
	}
	start := func() *privateFolder {
		f, err := newPrivateFolder()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.socket(), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	alive, killed, used := start(), start(), start()
	for _, f := range []*privateFolder{killed, used} {
		if err := f.lock.Close(); err != nil { // as the end of a process does
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(used.path, "notes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	folder := func(name, lock string, mode os.FileMode) string {
		path := filepath.Join(base, folderPrefix+name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if lock != "" {
			if err := os.WriteFile(filepath.Join(path, folderLock), []byte(lock), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	stay := []string{
		alive.path, used.path,
		folder("unlocked", "", 0o700), folder("marked", "something else\n", 0o700), folder("open", folderMark, 0o777),
	}
	next := start()
	if _, err := os.Lstat(killed.path); err == nil {
		t.Errorf("the folder of a killed shim is still there")
	}
	for _, path := range append(stay, next.path) {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("removed although it may be in use, or of another program: %v", err)
		}
	}
	for _, f := range []*privateFolder{alive, next} {
		if err := f.remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(f.path); err == nil {
			t.Errorf("%s is still there", f.path)
		}
	}
}

// TestLongTemporaryFolder: where the path of a socket would be too long, the folder is elsewhere.
func TestLongTemporaryFolder(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long/", 20))
	if err := os.MkdirAll(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	f, err := newPrivateFolder()
	if err != nil {
		t.Fatal(err)
	}
	if len(f.socket()) > maxSocketPath {
		t.Errorf("the socket's path %q has %d bytes", f.socket(), len(f.socket()))
	}
	if err := f.remove(); err != nil {
		t.Error(err)
	}
}
