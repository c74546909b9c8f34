package natsstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// Requests implements backend.Requests for one process. It reads nothing at first: a process that becomes the owner of
// a session reads its requests with OfSession, and looks for any other request with Find.
//
// The key of a request names its session if the request is about an existing one, such as Send. The keys of
// CreateSession, ResumeSession, Attach, Run and Resolve name none; only Find returns these requests.
//
// A process replaces only records that it wrote or read, at the version that it knows. If another process has written
// the record since then, Add returns backend.ErrStale and changes nothing: of two processes that begin the same
// request, one is refused. The owner of a session also replaces what owners of earlier terms wrote.
//
// It is safe for concurrent use. Calls for one key must not overlap.
type Requests struct {
	store  *Store
	owner  Ownership
	writer string // unique for each Requests

	mu        sync.Mutex
	known     map[backend.Key]version
	forgotten map[backend.Key]version // to be removed by Compact
}

// version is a record that the process knows.
type version struct {
	sequence uint64
	expires  time.Time
}

// Ownership returns the key of a tenant's session, as OpenSession has it, and the term in which this process owns the
// session; 0 if it does not.
type Ownership = func(tenant, session string) (key string, term uint64)

// headerWriter is the Requests that wrote a message. The message's term is that in which the writer owned the session
// that the request names.
const headerWriter = "Copilot-Writer"

// maxForgotten bounds the forgotten records that wait for Compact. Above it records stay until they expire.
const maxForgotten = 10_000

// Requests returns the requests of the cluster.
func (s *Store) Requests(owner Ownership) *Requests {
	return &Requests{
		store: s, owner: owner, writer: nuid.Next(),
		known: map[backend.Key]version{}, forgotten: map[backend.Key]version{},
	}
}

// requestHead is the first line of a record; the answer follows it.
type requestHead struct {
	Tenant    string    `json:"tenant,omitempty"`
	Operation string    `json:"operation"`
	ID        string    `json:"id"`
	Sum       []byte    `json:"sum,omitempty"`
	Expires   time.Time `json:"expires"`
	Type      string    `json:"type,omitempty"`
	Since     []byte    `json:"since,omitempty"`
}

func encodeRequest(q backend.Request) ([]byte, error) {
	head, err := json.Marshal(requestHead{
		Tenant: q.Key.Tenant, Operation: q.Key.Operation, ID: q.Key.ID, Sum: q.Sum, Expires: q.Expires, Type: q.Type,
		Since: q.Since,
	})
	return slices.Concat(head, []byte{'\n'}, q.Answer), err
}

func decodeRequest(data []byte) (backend.Request, error) {
	head, answer, ok := bytes.Cut(data, []byte{'\n'})
	if !ok {
		return backend.Request{}, errors.New("the record is cut short")
	}
	var h requestHead
	if err := json.Unmarshal(head, &h); err != nil {
		return backend.Request{}, err
	}
	return backend.Request{
		Key: backend.Key{Tenant: h.Tenant, Operation: h.Operation, ID: h.ID}, Sum: h.Sum, Expires: h.Expires,
		Type: h.Type, Answer: answer, Since: h.Since, Bytes: int64(len(answer)),
	}, nil
}

// noSession is the token of requests whose keys name no session. No session has it.
const noSession = "="

// session returns the token of the session that a key names, and the term in which this process owns the session.
func (r *Requests) session(key backend.Key) (name string, term uint64) {
	_, id, ok := strings.Cut(key.Operation, "\x00")
	if !ok {
		return noSession, 0
	}
	name, term = r.owner(key.Tenant, id)
	return token(name), term
}

// subject returns the subject of a request's record.
func (r *Requests) subject(key backend.Key) string {
	session, _ := r.session(key)
	return r.store.names.subject("request", session, hex.EncodeToString(key.Digest()))
}

// Add implements backend.Requests.
func (r *Requests) Add(q backend.Request) error {
	ctx, cancel := r.store.call(context.Background())
	defer cancel()
	write := r.write
	if left := time.Until(q.Expires); q.Over || left <= 0 {
		write = r.drop
	}
	subject := r.subject(q.Key)
	err := write(ctx, subject, q)
	if codeOf(err) == wrongLast && r.adopt(ctx, subject, q.Key) {
		err = write(ctx, subject, q)
	}
	if err != nil {
		return fmt.Errorf("recording request %q: %w", q.Key.ID, stale(err))
	}
	return nil
}

// adopt learns the version of a record that this process may replace: it wrote the record without knowing it, because
// the answer was lost, or an earlier owner of the session wrote it.
func (r *Requests) adopt(ctx context.Context, subject string, key backend.Key) bool {
	last, err := lastOf(ctx, r.store.requests, subject)
	switch {
	case err != nil:
		return false
	case last == nil: // it has expired
		r.set(key, version{})
		return true
	case last.Header.Get(headerWriter) != r.writer && !r.follows(key, last):
		return false
	}
	r.set(key, version{sequence: last.Sequence})
	return true
}

// follows reports whether this process owns the session that a key names in a later term than the writer of a message.
func (r *Requests) follows(key backend.Key, m *jetstream.RawStreamMsg) bool {
	written, err := strconv.ParseUint(m.Header.Get(headerTerm), 10, 64)
	_, term := r.session(key)
	return err == nil && written < term
}

// write replaces a record.
func (r *Requests) write(ctx context.Context, subject string, q backend.Request) error {
	data, err := encodeRequest(q)
	if err != nil {
		return err
	}
	_, term := r.session(q.Key)
	m := nats.Msg{Subject: subject, Data: data, Header: header(q.Key.ID, term)}
	m.Header.Set(headerWriter, r.writer)
	left := max(time.Until(q.Expires).Round(time.Second), time.Second)
	at := r.version(q.Key).sequence
	put := func(ctx context.Context, m *nats.Msg) (sequence uint64, err error) {
		at, err = r.store.publish(ctx, m, jetstream.WithMsgTTL(left), jetstream.WithExpectLastSequencePerSubject(at))
		return at, err
	}
	err = r.store.replace(ctx, r.store.requests, m, put)
	if err == nil {
		r.set(q.Key, version{at, q.Expires})
	}
	return err
}

// drop removes a record, unless another process has written it since.
func (r *Requests) drop(ctx context.Context, subject string, q backend.Request) error {
	at := r.version(q.Key).sequence
	r.set(q.Key, version{})
	if at == 0 {
		return nil
	}
	return purge(ctx, r.store.requests, subject, at+1)
}

func (r *Requests) version(key backend.Key) version {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok := r.forgotten[key]; ok {
		return v
	}
	return r.known[key]
}

// set sets the version of a record; a zero version removes it.
func (r *Requests) set(key backend.Key, v version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.forgotten, key)
	if v.sequence == 0 {
		delete(r.known, key)
	} else {
		r.known[key] = v
	}
}

// Find returns the record of a request; false if there is none.
func (r *Requests) Find(ctx context.Context, key backend.Key) (backend.Request, bool, error) {
	ctx, cancel := r.store.call(ctx)
	defer cancel()
	c, err := read(ctx, r.store.requests, r.subject(key))
	if err != nil || !c.exists {
		return backend.Request{}, false, err
	}
	q, err := decodeRequest(c.data)
	if err != nil {
		return backend.Request{}, false, fmt.Errorf("the record of request %q is damaged: %w", key.ID, err)
	}
	r.set(key, version{c.revision, q.Expires})
	return q, true, nil
}

// OfSession returns the requests whose keys name a session, the first to expire first. It leaves out answers of more
// than backend.MaxInline bytes.
func (r *Requests) OfSession(ctx context.Context, session string) ([]backend.Request, error) {
	return r.list(ctx, token(session))
}

// list reads the requests of the sessions that a token or a wildcard stands for.
func (r *Requests) list(ctx context.Context, sessions string) ([]backend.Request, error) {
	all, err := readAll(ctx, r.store.requests, r.store.names.subject("request", sessions, "*"))
	if err != nil {
		return nil, fmt.Errorf("reading the remembered requests: %w", err)
	}
	var list []backend.Request
	for subject, c := range all {
		q, err := decodeRequest(c.data)
		if err != nil {
			r.store.log.Warn("a remembered request could not be read", "subject", subject, "error", err)
			continue
		}
		if !q.Expires.After(time.Now()) {
			continue
		}
		if q.Bytes > backend.MaxInline {
			q.Answer = nil
		}
		r.set(q.Key, version{c.revision, q.Expires})
		list = append(list, q)
	}
	slices.SortFunc(list, func(a, b backend.Request) int { return a.Expires.Compare(b.Expires) })
	return list, nil
}

// Answer implements backend.Requests.
func (r *Requests) Answer(key backend.Key) (typ string, answer []byte, err error) {
	r.mu.Lock()
	_, gone := r.forgotten[key]
	r.mu.Unlock()
	var q backend.Request
	if !gone {
		var ok bool
		if q, ok, err = r.Find(context.Background(), key); ok {
			return q.Type, q.Answer, nil
		}
	}
	if err == nil {
		err = fs.ErrNotExist
	}
	return "", nil, fmt.Errorf("reading the answer to request %q: %w", key.ID, err)
}

// Forget implements backend.Requests. It does not wait: Compact removes the record.
func (r *Requests) Forget(key backend.Key, expires time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.known[key]
	if !ok || v.expires.After(expires) {
		return
	}
	delete(r.known, key)
	if len(r.forgotten) < maxForgotten {
		r.forgotten[key] = v
	}
}

// Compact implements backend.Requests: it removes the forgotten records until ctx ends.
func (r *Requests) Compact(ctx context.Context) error {
	for key, v := range r.expire(time.Now()) {
		if ctx.Err() != nil {
			return nil
		}
		call, cancel := r.store.call(ctx)
		err := purge(call, r.store.requests, r.subject(key), v.sequence+1)
		cancel()
		if err != nil {
			return fmt.Errorf("removing the record of request %q: %w", key.ID, err)
		}
		r.mu.Lock()
		if r.forgotten[key] == v {
			delete(r.forgotten, key)
		}
		r.mu.Unlock()
	}
	return nil
}

// expire drops what is known of records that the server has removed. It returns the forgotten records that are left.
func (r *Requests) expire(now time.Time) map[backend.Key]version {
	r.mu.Lock()
	defer r.mu.Unlock()
	expired := func(_ backend.Key, v version) bool { return !v.expires.After(now) }
	maps.DeleteFunc(r.known, expired)
	maps.DeleteFunc(r.forgotten, expired)
	return maps.Clone(r.forgotten)
}

// Close implements backend.Requests. The store stays open.
func (r *Requests) Close() error { return nil }
