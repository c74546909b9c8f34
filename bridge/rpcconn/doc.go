// Package rpcconn implements one JSON-RPC 2.0 connection to a Copilot CLI process: Content-Length frames over any
// byte stream, calls, notifications, and the peer's requests. It uses the error codes of
// github.com/sourcegraph/jsonrpc2, and is tested against that library; docs/adr/0002 explains why the library does
// not run the connection.
//
// # Inbound
//
// One goroutine reads from the peer. It passes session events and other notifications to callbacks in wire order,
// completes calls, and queues the peer's requests for a bounded set of workers. Callers cannot stop it, provided the
// callbacks that run on it do not block. The one exception is Options.Throttle, which may delay reading from a peer
// that sends more than can be stored.
//
// Events are delivered as the received bytes, without allocation. Replies and requests keep their original bytes too:
// only their members are located.
//
// # Outbound
//
// Callers build frames from the exact bytes given. The frames are queued up to a limit in bytes, and one goroutine
// writes them, several small ones at a time. A call whose context ends while it is queued is never written. If it was
// written already, a late reply to it is counted and dropped, and it keeps its in-flight slot until that reply or a
// grace time, because the peer is still processing it. Stats.Unanswered counts such calls without a reply: a peer
// with thousands of them leaks memory, and bridge replaces its process.
//
// # Locks and goroutines
//
// Conn.mu guards the calls, outbound.mu the queue of frames, server.mu the peer's requests; no two are held together.
// The reader and the writer run from New to the end of the connection, a worker while there is a request to serve;
// Wait waits for all of them.
//
// # Limits and behaviour at each
//
//   - MaxFrame: the connection closes with ErrFrameTooLarge.
//   - MaxInFlight: the call waits for a slot, first come, first served.
//   - MaxWaiting: the call fails at once with ErrTooManyCalls.
//   - MaxOutbound: the call fails at once with ErrOutboundFull; nothing is written.
//   - MaxRequestQueue: the peer gets an error reply, CodeOverloaded. If the
//     reply exceeds MaxOutbound, the peer sends requests without reading
//     replies: the connection closes with ErrPeerStalled.
//   - A header block over 4 KiB or malformed: the connection closes with
//     ErrBadFrame.
package rpcconn
