// Package natslog keeps the logs of sessions in NATS JetStream: it implements backend.Logs.
//
// All logs are in one stream, each as the messages of one subject. A change of a log is an operation: the opening by an
// owner, an append, a replacement, a trim or a deletion. An operation that is larger than a message has several parts,
// and counts once its last part is stored; without it, readers ignore the others. Every part is published with the
// number that the subject's last message is expected to have, and JetStream refuses it if another message is there. So
// an owner that opens a log fences all earlier ones: their next change fails with backend.ErrStale.
//
// A part whose acknowledgement did not arrive may be stored or not. The log then reads the subject's last message
// before its next change: each part names its writer and its number, by which the writer recognises it. Nothing is
// stored twice, and nothing that was stored is lost.
//
// Logs is safe for concurrent use, and has no goroutines and no lock. A log's mutex guards what is known of the
// subject; it is not held during requests.
package natslog
