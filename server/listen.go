package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// socketMode lets the own user connect to a unix socket, and nobody else.
const socketMode fs.FileMode = 0o600

// probeTimeout is how long another server may take to accept the connection that tells
// whether it is there.
const probeTimeout = time.Second

// Listen opens a listener: on the socket of "unix:PATH", for the own user alone, or on the
// TCP port of "HOST:PORT". Who may connect to that is for the caller to see to.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		return listenUnix(ctx, path)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if strings.EqualFold(host, "localhost") {
		// Not what a hosts file may make of the name.
		address = net.JoinHostPort("127.0.0.1", port)
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", address)
}

// listenUnix opens a unix socket for the own user alone. What an earlier server left at
// its path is removed, unless one answers there.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: restrictSocket}
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := restrictPath(path); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// restrictPath makes sure of the mode of a socket that exists.
func restrictPath(path string) error {
	if err := os.Chmod(path, socketMode); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode != socketMode {
		return fmt.Errorf("socket %q has mode %#o instead of %#o", path, mode, socketMode)
	}
	return nil
}

// removeStale removes a socket that nobody listens on.
func removeStale(ctx context.Context, path string) error {
	found, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case found.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%q exists and is no socket", path)
	}
	d := net.Dialer{Timeout: probeTimeout}
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("another server listens on %q", path), conn.Close())
	}
	if !refused(err) {
		return fmt.Errorf("whether another server listens on %q: %w", path, err)
	}
	// Another server may have put its own socket there while we asked.
	if now, err := os.Lstat(path); err != nil || !os.SameFile(found, now) {
		return fmt.Errorf("another server is starting on %q", path)
	}
	return os.Remove(path)
}
