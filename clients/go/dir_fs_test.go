package copilot_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
)

func TestDirFS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files, err := copilot.OpenDirFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("append", files.AppendFile("/state/deep/events", []byte("a"), 0o600))
	must("append", files.AppendFile("/state/deep/events", []byte("b"), 0o600))
	must("mkdir", files.Mkdir("/state/sub/sub", true, 0o700))
	must("write", files.WriteFile("/state/tmp", []byte("new"), 0o600))
	must("rename", files.Rename("/state/tmp", "/state/deep/file"))
	if data, err := files.ReadFile("/state/deep/events"); err != nil || string(data) != "ab" {
		t.Errorf("read %q, %v", data, err)
	}
	if entries, err := files.ReadDir("/state"); err != nil || len(entries) != 2 || !entries[0].IsDir() {
		t.Errorf("listed %v, %v", entries, err)
	}
	if info, err := files.Stat("/"); err != nil || !info.IsDir() {
		t.Errorf("the root is %v, %v", info, err)
	}
	if _, err := files.ReadFile("/state/tmp"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was moved: %v", err)
	}
	if err := files.Mkdir("/state", false, 0o700); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a directory that is there: %v", err)
	}
	if err := files.Remove("/state", false); err == nil {
		t.Error("a directory that is not empty was removed")
	}
	must("remove", files.Remove("/state", true))
	if err := files.Remove("/state", true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a second removal: %v", err)
	}
}

// No path leaves the directory, not by a link either.
func TestDirFSIsConfined(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	files, err := copilot.OpenDirFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	for _, name := range []string{"/link/secret", "/../" + filepath.Base(outside) + "/secret", outside + "/secret"} {
		if data, err := files.ReadFile(name); err == nil {
			t.Errorf("%s has %q", name, data)
		}
	}
}
