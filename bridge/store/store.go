// Package store is the bridge's data directory: the sessions with their state and journals, and the answers to
// idempotent requests. One process uses a directory at a time.
//
// Store.mu guards the list of damaged sessions and the names of the saved ones; saves of states and Requests have their own
// locks.
// The only goroutines are those of the journal.Writer, which Close ends.
//
//	lock                 locked by the process that uses the directory
//	epoch                an upper bound of all journals' epochs
//	format               the number of the directory's format
//	overruns             lets journals continue on a full disk
//	requests/            answers, as a log
//	journals/            the newest events, states and outboxes of many sessions, as a log
//	journals.doubts      how often that log was found damaged
//	sessions/ID/session  the state of a session, JSON, unless the log has a later one
//	sessions/ID/id       its key as text
//	sessions/ID/opening  exists until the session was opened for the first time
//	sessions/ID/*.seg    its journal
//	sessions/ID/outbox/  prompts whose turns have not ended, unless the log has later ones
//	sessions/ID~removed/ what a kill has left of a session that was being deleted; the next start removes it
//	damaged/ID/          an unreadable session, unchanged, with the reason
//	usage/               what deleted sessions have used of models, a file for each tenant
package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/joint"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

var (
	// ErrInUse reports a directory that another process uses.
	ErrInUse = errors.New("another server uses the data directory")
	// ErrLater reports a directory that a later version has written, in a way that this one does not understand.
	ErrLater = errors.New("a later version has written the data directory")
)

// Config configures a store.
type Config struct {
	// Dir is the data directory. It is created if it is missing.
	Dir string
	// Journals configures the writing of journals.
	Journals journal.WriterConfig
}

// Store is a data directory. It is safe for concurrent use.
type Store struct {
	cfg    Config
	fs     segment.FS
	log    *slog.Logger
	lock   *flock.Flock
	writer *journal.Writer
	logs   *journal.Folders

	// saving has capacity 1. Its holder saves a state, or moves a value of the log to its file, and may use lastState.
	saving    chan struct{}
	lastState uint64 // no state has a greater number

	mu        sync.Mutex
	lastEpoch uint64
	ceiling   *segment.Cell             // upper bound of all issued epochs
	damaged   map[string]backend.Damage // by place
	confirmed map[string]bool           // keys of saved sessions, which have a keyFile
}

// epochAhead is how far ahead epochs, which are milliseconds, are reserved.
const epochAhead = uint64(time.Hour / time.Millisecond)

// lockPatience is how long a lock may survive a killed process: a child that the process was starting has all its
// files open until it executes another program.
const (
	lockPatience = 2 * time.Second
	lockPoll     = 50 * time.Millisecond
	lockFile     = "lock"
)

// InUse returns ErrInUse if another process uses a data directory. It creates nothing.
func InUse(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, lockFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	return lock.Close()
}

// lockDir locks a data directory, or returns ErrInUse.
func lockDir(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, lockFile), flock.SetFlag(os.O_RDWR|os.O_CREATE))
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("%w %q", ErrInUse, dir)
		}
		return nil, fmt.Errorf("data directory %q: %w", dir, err)
	}
	return lock, nil
}

// Open locks and opens the directory. The caller must Close it after the journals.
func Open(cfg Config) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "sessions"), 0o700); err != nil {
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if cfg.Journals.FS == nil {
		cfg.Journals.FS = segment.OS{}
	}
	if cfg.Journals.Logger == nil {
		cfg.Journals.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Journals.OverrunFile = filepath.Join(cfg.Dir, "overruns")
	s := &Store{
		cfg: cfg, fs: cfg.Journals.FS, log: cfg.Journals.Logger, lock: lock,
		saving: make(chan struct{}, 1), damaged: map[string]backend.Damage{}, confirmed: map[string]bool{},
	}
	if err := s.loadDamaged(); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("reading the damaged sessions: %w", err)
	}
	s.ceiling, err = segment.OpenCell(s.fs, s.path("epoch"), true, func([]byte) uint64 {
		return 0 // the file is damaged; epochs still do not repeat: the clock has advanced
	})
	if s.ceiling == nil {
		_ = lock.Close()
		return nil, err
	}
	if err != nil {
		s.log.Warn("reserving disk space for epochs failed", "error", err)
	}
	s.lastEpoch = s.ceiling.Get()
	if err := s.convert(); err != nil {
		_ = lock.Close()
		return nil, err
	}
	s.writer = journal.NewWriter(cfg.Journals)
	if s.logs, err = journal.OpenFolders(s.writer, s.path("journals"), s.folder); err != nil {
		s.writer.Close()
		return nil, errors.Join(err, lock.Close())
	}
	if err := s.adopt(); err != nil {
		s.log.Warn("ending what the log has of deleted sessions failed", "error", err)
	}
	s.logs.Start(s.move)
	return s, nil
}

// Close releases the directory.
func (s *Store) Close() error {
	s.writer.Close()
	limit := time.Now().Add(moveAtEnd)
	if err := s.moveAll(func(string) bool { return time.Now().Before(limit) }); err != nil {
		s.log.Warn("moving what sessions have in the log to their files failed", "error", err)
	}
	return errors.Join(s.logs.Close(), s.lock.Close())
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.cfg.Dir}, parts...)...)
}

// Writer returns the writer of the journals.
func (s *Store) Writer() *journal.Writer { return s.writer }

// Degraded returns the journals whose disk is behind, by directory, with the reason.
func (s *Store) Degraded() map[string]error { return s.writer.Degraded() }

// NextEpoch returns an epoch that is greater than the epochs of all journals.
func (s *Store) NextEpoch() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := max(s.lastEpoch+1, uint64(time.Now().UnixMilli()))
	if next > s.ceiling.Get() {
		if err := s.ceiling.Raise(next + epochAhead); err != nil {
			return next, fmt.Errorf("reserving epochs: %w", err)
		}
	}
	s.lastEpoch = next
	return next, nil
}

// folder is the directory of a session. Names that differ only by case get different directories, also on file
// systems that ignore case.
func (s *Store) folder(id string) string {
	name := strings.ToLower(id)
	if name != id {
		sum := sha256.Sum256([]byte(id))
		name += "=" + hex.EncodeToString(sum[:4])
	}
	return s.path("sessions", name)
}

// Journal opens a session's journal, or starts one with the given epoch. The folder of a new session has an
// openingFile until Save.
func (s *Store) Journal(id string, epoch uint64) (*journal.Disk, journal.Recovery, error) {
	term, _ := s.NextEpoch() // without a reservation it is still later than all of this process
	d, found, err := journal.OpenLog(s.logs, id, term, epoch, s.folder(id), s.writer)
	if err == nil && found.New {
		d.Provisional(filepath.Join(s.folder(id), openingFile))
	}
	return d, found, err
}

// entry is the content of stateFile, and of the files in usage/.
type entry struct {
	ID string `json:"id"`
	// Sum is the CRC-32C of State, as text. It is empty in entries of versions that wrote none.
	Sum   string          `json:"sum,omitempty"`
	State json.RawMessage `json:"state"`
	// Number is greater than those of the session's earlier states. It is 0 in entries of versions without numbers.
	Number uint64 `json:"number,omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sumOf(state []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(state, castagnoli)) }

// writeState writes the file of a session.
func (s *Store) writeState(id string, state []byte, number uint64) error {
	return s.writeEntry(filepath.Join(s.folder(id), stateFile), id, state, number)
}

// writeEntry writes a file that is an entry.
func (s *Store) writeEntry(path, id string, state []byte, number uint64) error {
	state, err := json.Marshal(json.RawMessage(state)) // in the form in which it is read
	if err != nil {
		return err
	}
	text, err := json.Marshal(entry{ID: id, Sum: sumOf(state), State: state, Number: number})
	if err != nil {
		return err
	}
	if err := s.fs.MkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	return segment.WriteFile(s.fs, path, text, s.syncs())
}

// isConfirmed reports whether confirm has marked a session.
func (s *Store) isConfirmed(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed[id]
}

// unconfirm has the next state of a session go to its file, which is missing.
func (s *Store) unconfirm(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.confirmed, id)
}

// confirm marks a session's folder, once, as that of a confirmed session. The mark is not synced, because it can be
// derived.
func (s *Store) confirm(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.confirmed[id] {
		return nil
	}
	folder := s.folder(id)
	err := errors.Join(
		segment.WriteFile(s.fs, filepath.Join(folder, keyFile), []byte(id), false),
		s.fs.RemoveAll(filepath.Join(folder, openingFile)))
	s.confirmed[id] = err == nil
	return err
}

// Remove deletes a session, including its data that were set aside. Its journal must be closed.
func (s *Store) Remove(id string) error {
	s.forgetValues(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.confirmed, id)
	s.logs.Forget(id)
	return errors.Join(segment.RemoveDir(s.fs, s.folder(id)), s.logs.Joint().End(id, s.always()), s.removeDamaged(id))
}

// Session returns the state of a session, nil if there is none. An unreadable state is renamed, so that the session
// can be saved again.
func (s *Store) Session(id string) (json.RawMessage, error) {
	if state, ok := s.logs.Joint().Value(stateOf(id)); ok {
		return state.Body, nil
	}
	e, err := s.read(filepath.Base(s.folder(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		err = errors.Join(err, s.keepState(filepath.Join("sessions", filepath.Base(s.folder(id)))))
		s.unconfirm(id)
	}
	return e.State, err
}

// Knows reports whether the state of a session is stored.
func (s *Store) Knows(id string) bool {
	if _, ok := s.logs.Joint().Value(stateOf(id)); ok {
		return true
	}
	_, err := s.fs.Size(filepath.Join(s.folder(id), stateFile))
	return err == nil
}

// errState reports a state that differs from what was written.
var errState = errors.New("the session's state is damaged")

// read reads the state in a folder.
func (s *Store) read(folder string) (e entry, err error) {
	text, err := segment.ReadFile(s.fs, s.path("sessions", folder, stateFile))
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return entry{}, fmt.Errorf("%w: %w", errState, err)
	}
	switch {
	case e.ID == "":
		err = fmt.Errorf("%w: it has no session id", errState)
	case filepath.Base(s.folder(e.ID)) != folder:
		err = fmt.Errorf("%w: its session id is %q", errState, e.ID)
	case e.Sum != "" && e.Sum != sumOf(e.State):
		err = fmt.Errorf("%w: its checksum is %s, not %s", errState, sumOf(e.State), e.Sum)
	}
	if err != nil {
		return entry{}, err
	}
	return e, nil
}

// Sessions returns the state of every session, by id. Damaged sessions are set aside; sessions that the disk fails to
// read stay in place. Damaged reports both.
func (s *Store) Sessions() (map[string]json.RawMessage, error) {
	folders, err := s.fs.ReadDir(s.path("sessions"))
	if err != nil {
		return nil, err
	}
	out, done := map[string]json.RawMessage{}, map[string]bool{}
	for _, id := range s.logs.Joint().Values() { // also of those whose files are damaged
		if state, ok := s.logs.Joint().Value(id); ok && id.Kind == joint.State {
			out[id.Key], done[filepath.Base(s.folder(id.Key))] = state.Body, true
		}
	}
	for _, f := range folders {
		if !f.IsDir() || done[f.Name()] {
			continue
		}
		if strings.HasSuffix(f.Name(), segment.Removed) { // its deletion was not finished
			if err := s.fs.RemoveAll(s.path("sessions", f.Name())); err != nil {
				s.log.Warn("removing the rest of a deleted session failed", "directory", f.Name(), "error", err)
			}
			continue
		}
		e, err := s.read(f.Name())
		switch {
		case err == nil:
			out[e.ID] = e.State
			continue
		case errors.Is(err, fs.ErrNotExist):
			err = s.withoutState(f.Name())
		case errors.Is(err, errState):
			err = s.setAside(s.damageIn(f.Name(), "", err.Error()))
		default:
			s.leave(s.damageIn(f.Name(), "", err.Error()))
			continue
		}
		if err != nil {
			s.log.Error("moving a damaged session failed", "directory", f.Name(), "error", err)
		}
	}
	return out, nil
}
