// Package cluster makes several servers one service on NATS JetStream: a Node is one server (a replica) in it.
//
// # Leases
//
// A node has a lease: a key in a bucket whose keys expire. The key has a random name of this lease alone (the member),
// and the node renews it with the revision that it wrote last. A node that cannot renew in time ends its lease by its
// own clock, margin before the server may drop the key.
//
// A session has an owner: a key in a second bucket that names the member. It is created, or replaced with the
// revision that the caller read, so that the server decides between two callers. The revision is the term.
//
// Reads of a bucket can be stale. So a session of another member is taken only after the member has been fenced: its
// key is created anew with a certificate of its end. That works only if the key is gone, and from then on a renewal
// with the old revision is refused.
//
// Clocks are compared over the length of a lease only, never as times of day. If a clock runs wrong by more than the
// margin, two nodes can serve a session at once; the log of the session then still accepts events of the later term
// alone.
//
// # Locks and goroutines
//
// membership.mu guards one lease of the node, holdings.mu the sessions of this node, view.mu what the watches have
// reported. holdings.mu is taken before membership.mu, and after view.mu; no other two are held together. Node.Close
// ends the goroutines: one renews the lease, and one for each bucket reads its watch.
package cluster
