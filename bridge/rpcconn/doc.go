// Package rpcconn is one JSON-RPC 2.0 connection to a Copilot CLI process:
// Content-Length frames over any byte stream, correlation by
// github.com/sourcegraph/jsonrpc2, and around that library everything it
// leaves open.
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
// Events never reach the library: they leave as the bytes that were read, at
// no allocation. Replies and requests keep their original bytes too; the
// library only ever sees an envelope with the id in it, since it would decode
// every message several times and write params back with sorted keys and
// escaped characters.
//
// # Outbound
//
// Frames are built by the caller from the exact bytes given, queued under a
// byte bound, and written by one goroutine, several small ones at a time. A
// call whose context ends while it is queued is never written. One that was
// written gives its id up to a late reply, which is counted and dropped, and
// keeps its in-flight slot until that reply or a grace time, because the peer
// is still busy with it.
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
