package journal

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/joint"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// Folders keeps the logs of sessions in folders, as files of package segment. It implements
// backend.Logs for one process: it does not know the terms of an earlier process, which ended with
// the lock of the data directory. It is safe for concurrent use; its mutex guards terms.
type Folders struct {
	w      *Writer
	o      segment.Options
	folder func(session string) string
	joint  *joint.Log
	// value stores a value elsewhere, if the joint log has it. It is nil if no values are put there.
	value func(joint.ID) error

	moving atomic.Bool // moveSoon runs
	stuck  bool        // its last run failed; only it uses this

	mu    sync.Mutex
	terms map[string]*term
}

// OpenFolders returns logs with the writer's configuration, which share a joint log in a directory: their newest events
// are there only, from Start on. folder returns the folder of a session. The caller must Close the logs after the writer.
func OpenFolders(w *Writer, dir string, folder func(session string) string) (*Folders, error) {
	l := &Folders{
		w: w, folder: folder, terms: map[string]*term{},
		o: segment.Options{
			FS: w.cfg.FS, SegmentBytes: w.cfg.SegmentBytes, SyncFiles: w.cfg.Fsync != FsyncNever,
			Now: w.cfg.Now, Progress: w.moved,
		},
	}
	entries, err := joint.Open(dir, l.o, w.cfg.limits)
	if err != nil {
		return nil, err
	}
	w.openDoubts(dir, entries.Damaged())
	l.joint = entries
	return l, nil
}

// Start has the writer use the joint log. move stores a value elsewhere, if the joint log has it; it may be nil if no values
// are put there.
func (l *Folders) Start(move func(joint.ID) error) {
	l.value = move
	l.w.joined.Store(l)
}

// Joint returns the joint log, for values of sessions.
func (l *Folders) Joint() *joint.Log { return l.joint }

// moveAtEnd bounds the time for moving when the logs are closed. The next process moves the rest.
const moveAtEnd = 2 * time.Second

// Close moves the entries of the joint log to the logs of their sessions, as far as time permits. Values stay.
func (l *Folders) Close() error {
	begin := l.w.cfg.Now()
	late := func() bool { return l.w.cfg.Now().Sub(begin) > moveAtEnd }
	err := l.joint.Close(func(sessions []string, _ []joint.ID) error { return l.moveAll(sessions, nil, late) }, moveAtEnd)
	if rest := l.joint.Keys(); len(rest) > 0 {
		l.w.cfg.Logger.Info("the joint log keeps events until the next start", "journals", len(rest))
	}
	return err
}

// moveSoon runs moveAll in the background, unless it runs already: reading and syncing whole journals takes time,
// in which others are to be written. The goroutine of the local lane calls it.
func (l *Folders) moveSoon(sessions []string, values []joint.ID) {
	if !l.moving.CompareAndSwap(false, true) {
		return
	}
	l.w.wg.Go(func() {
		defer l.moving.Store(false)
		err := l.moveAll(sessions, values, l.w.stopped)
		if err != nil && !l.stuck {
			l.w.cfg.Logger.Warn("moving states of sessions and events of closed journals from the joint log failed", "error", err)
		}
		l.stuck = err != nil
	})
}

// moveAll moves values to where they stay, and what the joint log has for sessions that are not open to their logs, one
// after another until stop returns true.
func (l *Folders) moveAll(sessions []string, values []joint.ID, stop func() bool) error {
	var errs []error
	for _, id := range values {
		if stop() {
			break
		}
		errs = append(errs, l.value(id))
	}
	for _, session := range sessions {
		if stop() {
			break
		}
		errs = append(errs, l.move(session))
	}
	return errors.Join(errs...)
}

// Move moves what the joint log has for the session with a folder, whose journal is closed, to that folder.
func (l *Folders) Move(folder string) error {
	var errs []error
	for _, session := range l.joint.Keys() {
		if l.folder(session) != folder {
			continue
		}
		errs = append(errs, l.move(session))
		if m := l.joint.Member(session); m != nil {
			errs = append(errs, m.Finish())
		}
	}
	return errors.Join(errs...)
}

// move moves what the joint log has for a session that is not open to its log.
func (l *Folders) move(session string) error {
	log, found, err := l.openInherited(session)
	if log == nil || err != nil {
		return err
	}
	err = errors.Join(l.note(log, &found), log.Finish())
	if errors.Is(err, backend.ErrStale) {
		return nil // it was opened meanwhile
	}
	return err
}

// openInherited opens the log of a session that is not open and for which an earlier process left entries; nil if there
// is none. A later owner ends its changes.
func (l *Folders) openInherited(session string) (*ownedLog, backend.Recovered, error) {
	t := l.termOf(session)
	t.busy <- struct{}{}
	defer t.release()
	if t.over || !l.joint.Inherits(session) {
		return nil, backend.Recovered{}, nil
	}
	number := t.number
	change := func(f func() error) error { return t.change(number, f) }
	return l.open(t, number, 0, change, nil)
}

// note records in a log what is missing in it, for those who open it when the joint log no longer shows that.
func (l *Folders) note(log *ownedLog, found *backend.Recovered) error {
	d, rec := &Disk{log: log, writer: l.w}, Recovery{Recovered: *found}
	if d.number(&rec); !rec.Lost || d.unbacked {
		return nil
	}
	m := mark{
		reserved: d.start, boot: l.w.cfg.boot, losses: d.losses, overruns: d.marked, doubts: l.w.doubts.Load().Get(),
	}
	return log.Append(log.Last(), []backend.Entry{{Mark: true, Body: m.append(nil)}})
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
	defer t.release()
	change := func(f func() error) error { return t.change(number, f) }
	log, found, err := l.open(t, number, epoch, change, visit)
	if err != nil {
		return nil, found, err
	}
	return log, found, nil
}

// open opens the log of a session whose term the caller holds. change guards its changes. Without visit it is only to be
// finished.
func (l *Folders) open(
	t *term, number, epoch uint64, change func(func() error) error, visit func(number uint64, body []byte) error,
) (*ownedLog, backend.Recovered, error) {
	dir := l.folder(t.session)
	o := l.o
	o.Copies = l.joint.Copies(t.session)
	each := visit
	if visit == nil {
		each = func(uint64, []byte) error { return nil }
		o.Progress = nil // that is of the local lane
	}
	log, found, err := segment.Open(dir, epoch, o, each)
	if err != nil {
		return nil, found, err
	}
	member := l.joint.Attach(t.session, log, &found, change, visit)
	if m, ok := parseMark(found.Mark); ok && m.doubts < l.w.doubts.Load().Get() {
		found.Doubtful = true
	}
	return &ownedLog{Member: member, logs: l, dir: dir, term: t, number: number}, found, nil
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
	l.joint.Forget(session)
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
	err := segment.RemoveDir(l.o.FS, dir)
	if err == nil {
		l.joint.Forget(t.session)
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

// begin ends the earlier terms, once a change of theirs that is under way has ended, and holds the term until release.
// It does nothing if the session is over.
func (t *term) begin(number uint64) (over bool, err error) {
	limit := time.NewTimer(stallTimeout)
	defer limit.Stop()
	select {
	case t.busy <- struct{}{}:
	case <-limit.C:
		return false, fmt.Errorf("session %q is still being written: %w", t.session, ErrStalled)
	}
	switch {
	case t.over:
		over = true
	case number < t.number:
		err = t.stale(number)
	default:
		t.number = number
		return false, nil
	}
	t.release()
	return over, err
}

// change calls f if a term is the current one, which it stays until f returns.
func (t *term) change(number uint64, f func() error) error {
	if err := t.hold(number); err != nil {
		return err
	}
	defer t.release()
	return f()
}

// hold keeps a term the current one until release, or returns an error if it is not.
func (t *term) hold(number uint64) error {
	t.busy <- struct{}{}
	if t.over || number != t.number {
		defer t.release()
		return t.stale(number)
	}
	return nil
}

func (t *term) release() { <-t.busy }

func (t *term) stale(number uint64) error {
	return fmt.Errorf("session %q in term %d, later than %d: %w", t.session, t.number, number, backend.ErrStale)
}

// ownedLog is a log that refuses changes once a later term has begun.
type ownedLog struct {
	*joint.Member
	logs   *Folders
	dir    string
	term   *term
	number uint64
}

// Append implements backend.Log.
func (l *ownedLog) Append(last uint64, entries []backend.Entry) error {
	return l.term.change(l.number, func() error {
		if err := l.endsWith(last); err != nil {
			return err
		}
		return l.Member.Append(entries)
	})
}

func (l *ownedLog) endsWith(last uint64) error {
	if now := l.Last(); now != last {
		return fmt.Errorf("session %q ends with entry %d, not %d: %w", l.term.session, now, last, backend.ErrStale)
	}
	return nil
}

// Replace implements backend.Log.
func (l *ownedLog) Replace(epoch uint64, entries []backend.Entry) error {
	return l.term.change(l.number, func() error { return l.Member.Replace(epoch, entries) })
}

// Trim implements backend.Log.
func (l *ownedLog) Trim(maxBytes int64, before time.Time) (trimmed uint64, err error) {
	err = l.term.change(l.number, func() error {
		_, err := l.Member.Trim(maxBytes, before)
		return err
	})
	return l.Trimmed(), err
}

// Remote implements backend.Log: the folders are on one disk.
func (*ownedLog) Remote() bool { return false }

// Delete implements backend.Log: it removes the session's folder.
func (l *ownedLog) Delete() error {
	return errors.Join(l.Rest(), l.term.change(l.number, func() error { return l.logs.remove(l.dir, l.term) }))
}
