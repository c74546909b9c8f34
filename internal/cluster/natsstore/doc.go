// Package natsstore keeps what a cluster of bridges shares in NATS JetStream: the saved state of sessions, their
// unfinished prompts, their logs and snapshots, remembered requests, the usage of deleted sessions, and epochs. The
// ownership of sessions is not here: package cluster has it, on the same connection.
//
// # Names
//
// Every name begins with Config.Cluster, so that two clusters can share one NATS account. A stream is CLUSTER_KIND; its
// subjects are CLUSTER.KIND.>. Names that callers choose (session keys, file names, tenants) are one token of a subject
// each, encoded by token.
//
//	CLUSTER_session   CLUSTER.session.KEY.term       the term of the session's owner
//	                  CLUSTER.session.KEY.state      the saved state
//	                  CLUSTER.session.KEY.file.NAME  a file of the outbox
//	CLUSTER_request   CLUSTER.request.KEY.DIGEST     a request on a session, and its answer
//	                  CLUSTER.request.=.DIGEST       a request that names no session
//	CLUSTER_usage     CLUSTER.usage.TENANT.PART      the usage of deleted sessions
//	CLUSTER_epoch     CLUSTER.epoch                  its sequence numbers are the epochs
//	CLUSTER_log       CLUSTER.log.KEY                a log: package natslog
//	CLUSTER_blob      CLUSTER.blob.KEY.>             a snapshot: package natsblob
//
// # Servers
//
// Open refuses servers that can lose acknowledged messages: see Recipe. An account cannot see sync_interval unless the
// system account exports the subject that tells it:
//
//	SYS { exports = [{ service: "$SYS.REQ.SERVER.PING.JSZ", response_type: stream }] }
//	APP { imports = [{ service: { account: SYS, subject: "$SYS.REQ.SERVER.PING.JSZ" } }] }
//
// # Fencing
//
// A session's records belong to the term of its owner. OpenSession writes the term; every later write states the
// sequence number of that message with Nats-Expected-Last-Subject-Sequence-Subject, and the server refuses it with
// error 10071 once a later owner has written its own term. The refusal becomes backend.ErrStale. A frozen owner that
// wakes up therefore changes nothing.
//
// # Reads
//
// The streams of this package do not allow direct reads, which any replica answers and which can be old: a stream's
// leader answers all reads. Logs and snapshots are read directly, by package jsapi.
//
// # Concurrency
//
// A Store is safe for concurrent use. It has no goroutines except the goroutines of the NATS client, which Close ends.
// Every call ends after CallTimeout at the latest, also while the servers are away. The client then connects again, and
// does not send later what was written while the servers were away.
package natsstore
