package idempotency

import (
	"crypto/sha256"

	"google.golang.org/protobuf/proto"
)

// Begun is a request that is being carried out. Record and then End must be called, once each. A nil Begun stands for a
// request without an id.
type Begun struct {
	store *Store
	entry *entry
	doubt Doubt
}

// Begin is DoOrSettle for a caller that does not wait and carries out the request itself. It returns nil, and does
// nothing, if DoOrSettle must be called: if the request may have been made before, if its id is too long, or if the
// quota is used up. It waits for nothing, and does not look into a log to which other processes write.
func (s *Store) Begin(k Key, request proto.Message, d Doubt) *Begun {
	if k.ID == "" || len(k.ID) > MaxIDLength {
		return nil
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[k] != nil || s.admit(k) != nil {
		return nil
	}
	return &Begun{store: s, entry: s.add(k, sha256.Sum256(encoded)), doubt: d}
}

// Record writes down that the request begins: only a recorded request can be settled later. If that fails, the request
// is carried out nevertheless. Record may hang in the disk's call.
func (b *Begun) Record() {
	if b.doubt.Since == nil {
		return
	}
	s, e, since := b.store, b.entry, b.doubt.Since()
	s.mu.Lock()
	e.since = since
	s.resize(e, 0)
	s.mu.Unlock()
	if s.log != nil {
		_ = s.log.Begun(e.key, e.request[:], e.expires, since)
	}
}

// End completes the request, for those who wait for it too. It may hang in the disk's call.
func (b *Begun) End(answer proto.Message, err error) {
	if b == nil {
		return
	}
	s, e, d := b.store, b.entry, b.doubt
	e.answer, e.err = answer, err
	unsettled := e.unsettled() || err != nil && d.Open != nil && d.Open(err)
	logged := false
	switch {
	case s.log == nil || unsettled:
	case err == nil:
		logged = s.log.Ended(e.key, e.request[:], e.expires, answer) == nil
	case d.Since != nil || e.doubt:
		_ = s.log.Ended(e.key, e.request[:], e.expires, nil) // as Record
	}
	s.complete(e, unsettled, logged)
}

// complete ends the waiting for a request. unsettled says that its outcome is unknown, logged that the log has its
// answer.
func (s *Store) complete(e *entry, unsettled, logged bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.err == nil:
		e.doubt, e.settling, e.since = false, false, nil
		s.resize(e, int64(proto.Size(e.answer)))
		if logged && proto.Size(e.answer) > MaxInline {
			e.answer, e.logged = nil, true
		}
	case s.entries[e.key] != e:
	case unsettled:
		s.put(&entry{
			key: e.key, request: e.request, expires: e.expires, done: e.done, doubt: true, since: e.since, err: e.err,
		})
	default:
		s.remove(e)
	}
	close(e.done)
}
