package app

import (
	"os"
	"path/filepath"
)

const (
	unixPrefix = "unix:"
	socketName = "copilot-grpc.sock"
)

// DefaultSocket is the path of the socket that servers listen on and commands call
// unless told otherwise. It is in a directory where only the own user can make files:
// nobody else can have put a socket of his there before.
func DefaultSocket() (string, error) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, socketName), nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "copilot-grpc", socketName), nil
}
