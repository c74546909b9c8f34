package transport

import (
	"context"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// SocketCredentials returns plain-text transport credentials that refuse a unix socket whose
// server runs as another user: in a directory such as /tmp anyone can make a socket first, and
// would be sent tokens and prompts. A server of root is accepted, and root accepts every
// server. The peer is known on Linux; elsewhere, and over TCP, nothing is checked. [Dial] uses
// them for unix sockets.
func SocketCredentials() credentials.TransportCredentials {
	return socketCredentials{insecure.NewCredentials()}
}

type socketCredentials struct {
	credentials.TransportCredentials
}

// ClientHandshake implements credentials.TransportCredentials.
func (c socketCredentials) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	if socket, ok := conn.(*net.UnixConn); ok {
		if err := checkPeer(socket, os.Geteuid()); err != nil {
			return nil, nil, err
		}
	}
	return c.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (c socketCredentials) Clone() credentials.TransportCredentials {
	return socketCredentials{c.TransportCredentials.Clone()}
}

// checkPeer refuses a server that runs as neither the user own nor root.
func checkPeer(conn *net.UnixConn, own int) error {
	uid, known, err := peerUser(conn)
	if err != nil {
		return fmt.Errorf("copilot: the user of the server on %q: %w", conn.RemoteAddr(), err)
	}
	if own == 0 || !known || uid == 0 || uid == own {
		return nil
	}
	return fmt.Errorf("copilot: the server on %q runs as user %d, not as you (%d): another user made this socket",
		conn.RemoteAddr(), uid, own)
}
