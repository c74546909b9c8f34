// Package rpcconn is one JSON-RPC 2.0 connection to a Copilot CLI process:
// Content-Length frames over any byte stream, calls, notifications, and the
// peer's requests. It uses the error codes of github.com/sourcegraph/jsonrpc2,
// and is tested against that library; docs/adr/0002 says why the library does
// not run the connection.
//
// # Three lanes inbound
//
// One goroutine reads the peer, always. It hands session events and other
// notifications to callbacks in wire order, completes calls, and queues the
// peer's own requests for a bounded set of workers. Nothing a caller does can
// stop it, provided the callbacks documented as running on it do not block. One
// exception is made on purpose: Options.Throttle may hold up the reading of a peer
// that says more than can be stored.
//
// Events leave as the bytes that were read, at no allocation. Replies and
// requests keep their original bytes too: only their members are located.
//
// # Outbound
//
// Frames are built by the caller from the exact bytes given, queued under a
// byte bound, and written by one goroutine, several small ones at a time. A
// call whose context ends while it is queued is never written. One that was
// written gives its id up to a late reply, which is counted and dropped, and
// keeps its in-flight slot until that reply or a grace time, because the peer
// is still busy with it. Stats.Unanswered counts those without a reply so far:
// a peer with thousands of them leaks, and bridge replaces its process.
//
// # Locks and goroutines
//
// Conn.mu guards the calls, outbound.mu the queue of frames, server.mu the
// peer's requests; no two are held together. The reader and the writer run
// from New to the end of the connection, a worker while there is a request to
// serve; Wait joins them.
//
// # Bounds and what happens at each
//
//   - MaxFrame: the connection closes, ErrFrameTooLarge.
//   - MaxInFlight: the call waits for a slot until its context ends.
//   - MaxOutbound: the call fails at once, ErrOutboundFull, nothing written.
//   - MaxRequestQueue: the peer gets an error reply, CodeOverloaded. If even
//     that does not fit in MaxOutbound, the peer sends requests and reads no
//     answers: the connection closes, ErrPeerStalled.
//   - A header block over 4 KiB or not of the protocol: the connection closes,
//     ErrBadFrame.
package rpcconn
