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

// socketMode permits only the server's user to connect to a unix socket.
const socketMode fs.FileMode = 0o600

// probeTimeout is how long another server may take to accept the connection that detects it.
const probeTimeout = time.Second

// ListenError is the error of an address on which the server cannot listen.
type ListenError struct {
	Address string
	Err     error
}

// Error implements error.
func (e *ListenError) Error() string { return fmt.Sprintf("listen on %q: %v", e.Address, e.Err) }

// Unwrap returns the cause.
func (e *ListenError) Unwrap() error { return e.Err }

// Listen opens a listener: on the socket of "unix:PATH", for the server's user only, or on the TCP port of
// "HOST:PORT". The caller must control access to a TCP port. Errors are a [*ListenError].
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := listen(ctx, address)
	if err != nil {
		return nil, &ListenError{address, err}
	}
	return l, nil
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		return listenUnix(ctx, path)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if strings.EqualFold(host, "localhost") {
		// A hosts file could map the name to another address.
		address = net.JoinHostPort("127.0.0.1", port)
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", address)
}

// listenUnix opens a unix socket for the server's user only. It removes a socket that an earlier server left, unless
// a server answers on it.
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

// restrictPath ensures the mode of an existing socket.
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

// removeStale removes a socket without a listener.
func removeStale(ctx context.Context, path string) error {
	found, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case found.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%q exists and is not a socket", path)
	}
	d := net.Dialer{Timeout: probeTimeout}
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("another server listens on %q", path), conn.Close())
	}
	if !refused(err) {
		return fmt.Errorf("checking for another server on %q: %w", path, err)
	}
	// Another server may have created its socket there in the meantime.
	if now, err := os.Lstat(path); err != nil || !os.SameFile(found, now) {
		return fmt.Errorf("another server is starting on %q", path)
	}
	return os.Remove(path)
}
