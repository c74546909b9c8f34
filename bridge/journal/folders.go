package journal

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// Folders keeps the logs of sessions in folders, as files of package segment. It implements
// backend.Logs for one process: it does not know the terms of an earlier process, which ended with
// the lock of the data directory. It is safe for concurrent use; its mutex guards terms.
type Folders struct {
	o      segment.Options
	folder func(session string) string

	mu    sync.Mutex
	terms map[string]*term
}

// NewFolders returns logs with the writer's configuration. folder returns the folder of a session.
func NewFolders(w *Writer, folder func(session string) string) *Folders {
	return &Folders{
		folder: folder, terms: map[string]*term{},
		o: segment.Options{
			FS: w.cfg.FS, SegmentBytes: w.cfg.SegmentBytes, SyncFiles: w.cfg.Fsync != FsyncNever,
			Now: w.cfg.Now, Progress: w.moved,
		},
	}
}

// Open implements backend.Logs. It fails if the earlier owner is writing and the disk hangs.
func (l *Folders) Open(
	session string, number, epoch uint64, visit func(number uint64, body []byte) error,
) (backend.Log, backend.Recovered, error) {
	t := l.termOf(session)
	over, err := t.begin(number)
	for over && err == nil { // the session was deleted just now
		t = l.termOf(session)
		over, err = t.begin(number)
	}
	if err != nil {
		return nil, backend.Recovered{}, err
	}
	dir := l.folder(session)
	log, found, err := segment.Open(dir, epoch, l.o, visit)
	if err != nil {
		return nil, found, err
	}
	return &ownedLog{Log: log, logs: l, dir: dir, term: t, number: number}, found, nil
}

// termOf returns the current term of a session.
func (l *Folders) termOf(session string) *term {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok := l.terms[session]
	if !ok {
		t = &term{session: session, busy: make(chan struct{}, 1)}
		l.terms[session] = t
	}
	return t
}

// Forget frees what is remembered of a session whose folder is deleted, unless it is still being
// written.
func (l *Folders) Forget(session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok := l.terms[session]
	if !ok {
		return
	}
	select {
	case t.busy <- struct{}{}:
		t.over = true
		delete(l.terms, session)
		<-t.busy
	default:
	}
}

// remove deletes the folder of a session whose term is held.
func (l *Folders) remove(dir string, t *term) error {
	err := l.o.FS.RemoveAll(dir)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		t.over = true
		delete(l.terms, t.session)
	}
	return err
}

// term is the current term of a session.
type term struct {
	session string
	// busy has capacity 1. Its holder changes the log, or what follows.
	busy   chan struct{}
	number uint64
	over   bool // the session was deleted
}

// begin ends the earlier terms, once a change of theirs that is under way has ended. It does
// nothing if the session is over.
func (t *term) begin(number uint64) (over bool, err error) {
	limit := time.NewTimer(stallTimeout)
	defer limit.Stop()
	select {
	case t.busy <- struct{}{}:
	case <-limit.C:
		return false, fmt.Errorf("session %q is still being written: %w", t.session, ErrStalled)
	}
	defer func() { <-t.busy }()
	if t.over {
		return true, nil
	}
	if number < t.number {
		return false, t.stale(number)
	}
	t.number = number
	return false, nil
}

// change calls f if a term is the current one, which it stays until f returns.
func (t *term) change(number uint64, f func() error) error {
	t.busy <- struct{}{}
	defer func() { <-t.busy }()
	if t.over || number != t.number {
		return t.stale(number)
	}
	return f()
}

func (t *term) stale(number uint64) error {
	return fmt.Errorf("session %q in term %d, later than %d: %w", t.session, t.number, number, backend.ErrStale)
}

// ownedLog is a log that refuses changes once a later term has begun.
type ownedLog struct {
	*segment.Log
	logs   *Folders
	dir    string
	term   *term
	number uint64
}

// Append implements backend.Log.
func (l *ownedLog) Append(last uint64, entries []backend.Entry) error {
	return l.term.change(l.number, func() error {
		if now := l.Last(); now != last {
			return fmt.Errorf("session %q ends with entry %d, not %d: %w", l.term.session, now, last, backend.ErrStale)
		}
		return l.Log.Append(entries)
	})
}

// Replace implements backend.Log.
func (l *ownedLog) Replace(epoch uint64, entries []backend.Entry) error {
	return l.term.change(l.number, func() error { return l.Log.Replace(epoch, entries) })
}

// Trim implements backend.Log.
func (l *ownedLog) Trim(maxBytes int64, before time.Time) (trimmed uint64, err error) {
	err = l.term.change(l.number, func() error {
		_, err := l.Log.Trim(maxBytes, before)
		return err
	})
	return l.Trimmed(), err
}

// Remote implements backend.Log: the folders are on one disk.
func (*ownedLog) Remote() bool { return false }

// Renew implements backend.Log.
func (l *ownedLog) Renew() error { return l.term.change(l.number, l.Log.Renew) }

// Delete implements backend.Log: it removes the session's folder.
func (l *ownedLog) Delete() error {
	return errors.Join(l.Rest(), l.term.change(l.number, func() error { return l.logs.remove(l.dir, l.term) }))
}
