package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// requestSlack is the size of obsolete records, in addition to the size of the current ones, above which the log is
// compacted.
const requestSlack = 2 * segment.DefaultSegmentBytes

// requestLog is the log of idempotent requests. It is append-only: a record is current until a later one has its key or
// it is forgotten. The log is compacted file by file, so that its files have at most twice the bytes of the current
// records plus requestSlack. It is safe for concurrent use.
type requestLog struct {
	sync      bool // each record
	syncMoves bool // before the file of records that were moved is dropped

	mu   sync.Mutex
	log  *segment.Log
	at   map[backend.Key]record // the current records
	live int64                  // their size in bytes
}

// record is the location of a record.
type record struct {
	number  uint64
	bytes   int64
	expires int64 // in milliseconds since 1970
	place   int   // index in the list that Requests returns
}

// Requests opens the log of requests, and returns the unexpired ones, ordered by expiry. Large answers stay in
// the log: see Answer.
func (s *Store) Requests() (backend.Requests, []backend.Request, error) {
	r := &requestLog{
		sync: s.cfg.Journals.Fsync == journal.FsyncAlways, syncMoves: s.cfg.Journals.Fsync != journal.FsyncNever,
		at: map[backend.Key]record{},
	}
	now, unreadable := time.Now(), 0
	var list []backend.Request
	o := segment.Options{FS: s.fs, SyncFiles: r.syncMoves}
	log, found, err := segment.Open(s.path("requests"), 1, o, func(number uint64, body []byte) error {
		q, err := decodeRequest(body)
		if err != nil {
			unreadable++ // one record: the records after it are intact
			return nil
		}
		before, again := r.at[q.Key]
		if q.Over || !q.Expires.After(now) {
			if again {
				list[before.place] = backend.Request{}
				r.forget(q.Key)
			}
			return nil
		}
		if q.Bytes > backend.MaxInline {
			q.Answer = nil
		}
		q.Sum, q.Since, q.Answer = slices.Clone(q.Sum), slices.Clone(q.Since), slices.Clone(q.Answer)
		if !again {
			before.place = len(list)
			list = append(list, backend.Request{})
		}
		list[before.place] = q
		r.count(q, number, len(body), before.place)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if found.Damaged() || unreadable > 0 {
		s.log.Warn("some remembered requests were lost",
			"bytes", found.Cut+found.Skipped, "files", len(found.SetAside), "records", unreadable)
	}
	r.log = log
	list = slices.DeleteFunc(list, func(q backend.Request) bool { return q.Key == backend.Key{} })
	slices.SortStableFunc(list, func(a, b backend.Request) int { return a.Expires.Compare(b.Expires) })
	return r, list, nil
}

// count adds a current record. The caller holds mu.
func (r *requestLog) count(q backend.Request, number uint64, bytes, place int) {
	r.live += int64(bytes) - r.at[q.Key].bytes
	r.at[q.Key] = record{number, int64(bytes), q.Expires.UnixMilli(), place}
}

// forget removes the current record of a key. The caller holds mu.
func (r *requestLog) forget(key backend.Key) {
	r.live -= r.at[key].bytes
	delete(r.at, key)
}

// Add appends a record. An answer replaces the record of the start; a failure replaces both.
func (r *requestLog) Add(q backend.Request) error {
	body := encodeRequest(&q)
	r.mu.Lock()
	defer r.mu.Unlock()
	number := r.log.Last() + 1
	if err := r.log.Append([]segment.Entry{{Number: number, Body: body}}); err != nil {
		return err
	}
	if q.Over {
		r.forget(q.Key)
	} else {
		r.count(q, number, len(body), 0)
	}
	if r.sync {
		if _, err := r.log.Sync(); err != nil {
			return err
		}
	}
	return r.compact()
}

// Answer reads an answer and its type.
func (r *requestLog) Answer(key backend.Key) (typ string, answer []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	where, ok := r.at[key]
	if !ok {
		return "", nil, fmt.Errorf("the request log has no request %q", key.ID)
	}
	var q backend.Request
	bad := fmt.Errorf("the record of request %q: %w", key.ID, segment.ErrDamaged) // until it was read
	err = r.log.Read(where.number-1, func(number uint64, body []byte) bool {
		if number != where.number {
			return false
		}
		if q, bad = decodeRequest(body); bad == nil {
			answer = slices.Clone(q.Answer)
		}
		return false
	})
	return q.Type, answer, cmp.Or(err, bad)
}

// Forget drops the record of a request unless it expires after expires.
func (r *requestLog) Forget(key backend.Key, expires time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at[key].expires <= expires.UnixMilli() {
		r.forget(key)
	}
}

// Compact compacts the log as far as possible, one file at a time, until ctx ends.
func (r *requestLog) Compact(ctx context.Context) error {
	for ctx.Err() == nil {
		r.mu.Lock()
		size := r.log.Size()
		err := r.compact()
		smaller := r.log.Size() < size
		r.mu.Unlock()
		if err != nil || !smaller {
			return err
		}
	}
	return nil
}

// compact drops the oldest file if the log is too large, after appending the file's current records again. The caller
// holds mu.
func (r *requestLog) compact() error {
	if r.log.Size() <= 2*r.live+requestSlack {
		return nil
	}
	last, ok := r.log.Oldest()
	if !ok {
		return nil
	}
	var moved []segment.Entry
	var keys []backend.Key
	next := r.log.Last()
	err := segment.ReadPast(r.log, r.log.Trimmed(), func(number uint64, body []byte) bool {
		if number > last {
			return false
		}
		if q, err := decodeRequest(body); err == nil && r.at[q.Key].number == number {
			next++
			moved = append(moved, segment.Entry{Number: next, Body: slices.Clone(body)})
			keys = append(keys, q.Key)
		}
		return true
	})
	if err == nil {
		err = r.log.Append(moved)
	}
	if err != nil {
		return err
	}
	for i, key := range keys {
		where := r.at[key]
		where.number = moved[i].Number
		r.at[key] = where
	}
	if r.syncMoves { // also what an earlier attempt has moved
		if _, err := r.log.Sync(); err != nil {
			return err
		}
	}
	return r.log.DropOldest()
}

// Close closes the log.
func (r *requestLog) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.log.Sync()
	return errors.Join(err, r.log.Rest())
}
