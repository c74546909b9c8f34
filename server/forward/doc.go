// Package forward carries a call to the replica that has its session. Package server gives it every call that its
// layers have admitted, from gRPC and from browsers alike:
//
//   - Forwarder serves a call here if this replica has the session or no replica has it, and else relays it, as bytes,
//     to the replica that has it (its owner).
//   - Receiver serves the calls that other replicas have relayed. It refuses a session that another replica has, claims
//     one that none has, and never relays, so calls cannot go in circles.
//
// A replica that drains relays the calls that create a session to another one, and so those about a session that no
// replica has. DrainNode goes to the replica that it names.
//
// The first request of a call is decoded where the call enters, because the layers read it, and again by the owner. All
// other messages and all replies pass through as bytes, with metadata, deadline, cancellation, status and trailers. The
// owner checks requests by its own policy too, because it may know fields that the entry replica does not know yet.
//
// A relayed call that the owner refused before it began, or that could not be sent, is located and sent again, a
// bounded number of times. A call that breaks later ends with UNAVAILABLE, reason SESSION_UNAVAILABLE: clients repeat
// requests by their ids and resume streams by position.
//
// A call of Subscribe for sessions of several replicas has a part for each of them, whose frames are merged as bytes.
// The first part that fails ends the others: clients resume all sessions by position.
//
// Calls about all sessions ask all replicas. ListSessions, ListPending and ListShareOffers merge the replicas' pages in
// order, GetUsage adds the rows; they fail with SESSION_UNAVAILABLE while a replica does not answer, because a list
// that lacks its sessions would be wrong. PruneSessions asks one replica after the other, and reports those that do not
// answer. WatchSessions and WatchPending merge the changes. When a replica joins,
// leaves or answers again, or has skipped changes, they send a reset and then the state of all replicas. All other
// calls without a session concern the replica where they enter.
//
// Replicas speak mutual TLS, with a CA that signs replicas only, on a separate listener. The caller's identity goes
// with each call in the metadata MetadataCaller, which all other listeners refuse.
//
// Memory is bounded by flow control: a relay holds one message, and the window of its stream (streamWindow). A stream
// has one goroutine, that of its handler, and a second one if its client sends more than one message; that ends with
// the stream; each part of a merged call has a goroutine too. peers.mu guards the connections to other replicas,
// link.mu the sending side of one stream, shared.mu and parts.mu a merged call. No two are
// held together.
package forward
