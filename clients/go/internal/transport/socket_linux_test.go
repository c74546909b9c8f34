package transport

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A server on a unix socket is believed if it runs as the caller's user or root.
func TestPeerOfSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	uid, known, err := peerUser(conn)
	if err != nil || !known || uid != os.Geteuid() {
		t.Fatalf("peerUser() = %d, %v, %v", uid, known, err)
	}
	for own, refused := range map[int]bool{uid: false, 0: false, uid + 1: uid != 0} {
		err := checkPeer(conn, own)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "another user made this socket") {
			t.Errorf("as user %d: %v, want refused = %v", own, err, refused)
		}
	}
}
