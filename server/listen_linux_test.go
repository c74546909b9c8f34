package server

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// The mode is there before the name, not only after the chmod that follows: restrictPath
// is left out here.
func TestSocketHasItsModeFromTheStart(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "srv")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s.sock")
	lc := net.ListenConfig{Control: restrictSocket}
	l, err := lc.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != socketMode {
		t.Errorf("mode %v", info.Mode())
	}
}
