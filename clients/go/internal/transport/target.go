package transport

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	socketName   = "copilot-grpc.sock"
	probeTimeout = time.Second
)

// DefaultSocket returns the default socket of `copilot-grpc serve`.
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

// Listens reports whether a program listens on a unix socket.
func Listens(ctx context.Context, path string) bool {
	dialer := net.Dialer{Timeout: probeTimeout}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	return true
}

// IsURL reports whether a target is the address of a website or the like. Programs may have resolvers for other schemes.
func IsURL(target string) bool {
	scheme, _, found := strings.Cut(strings.ToLower(target), "://")
	return found && slices.Contains([]string{"http", "https", "grpc", "grpcs", "tcp"}, scheme)
}

// IsLocal reports whether traffic to a target stays on this machine.
func IsLocal(target string) bool {
	if strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:") {
		return true
	}
	if i := strings.LastIndex(target, "/"); i >= 0 { // dns:///host:port, passthrough:///…
		target = target[i+1:]
	}
	target = strings.TrimPrefix(target, "dns:")
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		host = target
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
