package app

import (
	"os"
	"path/filepath"
)

const (
	unixPrefix = "unix:"
	socketName = "copilot-grpc.sock"
)

// DefaultSocket returns the default path of the socket for servers and commands. Only the user can create files in
// its directory, so no other user can have created a socket there.
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
