package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// removedFor is how long the term of a removed session, and the mark of a removed file, stay. Until then an owner of an
// earlier term cannot create the session again.
const removedFor = time.Hour

// termRecord is the message that has a session's term.
type termRecord struct {
	Key     string `json:"key"`
	Term    uint64 `json:"term"`
	Removed bool   `json:"removed,omitempty"`
}

// Session is the access of one owner to the records of a session. Its methods return backend.ErrStale once a later
// owner has opened the session, and the records are then unchanged. It is safe for concurrent use: writes wait for each
// other.
type Session struct {
	store *Store
	key   string
	term  uint64
	lost  func(error)

	mu sync.Mutex // held during a write; guards what follows
	// fence is the sequence number of the term's message.
	fence   uint64
	removed bool
}

// OpenSession opens the records of a session for the owner of a term. When it returns, every Session of an earlier term
// refuses writes. It returns backend.ErrStale if the session has had a later term. A session without records is
// created, and stays until Remove. lost is called when a later owner has refused a change.
func (s *Store) OpenSession(ctx context.Context, key string, term uint64, lost func(error)) (*Session, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	o := &Session{store: s, key: key, term: term, lost: lost}
	for {
		old, sequence, err := o.readTerm(ctx)
		if err == nil && old.Term > term {
			err = fmt.Errorf("term %d is over, the session has term %d: %w", term, old.Term, backend.ErrStale)
		}
		if err == nil {
			o.fence, err = o.writeTerm(ctx, termRecord{Key: key, Term: term}, sequence)
		}
		if err == nil && old.Removed {
			err = o.purge(ctx) // what a Remove may have left
		}
		if err == nil {
			return o, nil
		}
		if codeOf(err) != wrongLast || ctx.Err() != nil { // else another owner was faster
			return nil, fmt.Errorf("opening the records of session %q: %w", key, err)
		}
	}
}

func (o *Session) subject(parts ...string) string {
	return o.store.names.subject("session", append([]string{token(o.key)}, parts...)...)
}

// readTerm returns the session's current term and the sequence number of its message; zero values if there is none.
func (o *Session) readTerm(ctx context.Context) (r termRecord, sequence uint64, err error) {
	m, err := lastOf(ctx, o.store.sessions, o.subject("term"))
	if m == nil || err != nil {
		return r, 0, err
	}
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return r, 0, fmt.Errorf("the message with its term is damaged: %w", err)
	}
	if r.Key != o.key {
		return r, 0, fmt.Errorf("its records belong to session %q", r.Key)
	}
	return r, m.Sequence, nil
}

// writeTerm replaces the message with the session's term if its sequence number is still the given one.
func (o *Session) writeTerm(ctx context.Context, r termRecord, sequence uint64) (uint64, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	m := &nats.Msg{Subject: o.subject("term"), Data: data, Header: nats.Header{}}
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(sequence)}
	if r.Removed {
		opts = append(opts, jetstream.WithMsgTTL(removedFor))
	}
	return o.store.publish(ctx, m, opts...)
}

// purge removes all records that are older than the term's message.
func (o *Session) purge(ctx context.Context) error {
	return purge(ctx, o.store.sessions, o.subject(">"), o.fence)
}

// publish stores a message if no later owner has opened the session. The caller holds mu.
func (o *Session) publish(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (uint64, error) {
	if o.removed {
		return 0, fmt.Errorf("the session was removed: %w", backend.ErrStale)
	}
	opts = append(opts, jetstream.WithExpectLastSequenceForSubject(o.fence, o.subject("term")))
	sequence, err := o.store.publish(ctx, m, opts...)
	return sequence, o.refused(err)
}

// refused tells the owner that a later one has refused a change.
func (o *Session) refused(err error) error {
	if err = stale(err); errors.Is(err, backend.ErrStale) {
		o.lost(err)
	}
	return err
}

// stale adds backend.ErrStale to the server's refusal.
func stale(err error) error {
	if codeOf(err) == wrongLast {
		return fmt.Errorf("%w: %w", backend.ErrStale, err)
	}
	return err
}

// Remove removes all records of the session. The session is then closed: later writes return backend.ErrStale, except
// Remove, which can be repeated after an error.
func (o *Session) Remove(ctx context.Context) error {
	ctx, cancel := o.store.call(ctx)
	defer cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.remove(ctx); err != nil {
		return fmt.Errorf("removing the records of session %q: %w", o.key, err)
	}
	return nil
}

// remove marks the session as removed before it removes the records, so that no other owner loses any.
func (o *Session) remove(ctx context.Context) error {
	sequence, err := o.writeTerm(ctx, termRecord{Key: o.key, Term: o.term, Removed: true}, o.fence)
	if codeOf(err) == wrongLast { // a repetition, or a later owner
		r, last, readErr := o.readTerm(ctx)
		switch {
		case readErr != nil:
			return errors.Join(err, readErr)
		case r.Term != o.term || !r.Removed:
			return o.refused(err)
		}
		sequence, err = last, nil
	}
	if err != nil {
		return err
	}
	o.fence, o.removed = sequence, true
	return o.purge(ctx)
}
