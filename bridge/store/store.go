// Package store is the bridge's directory of what outlives it: which sessions there are,
// what is known of each, their journals, and the answers to requests that may come twice.
// One process has it at a time.
//
//	lock                 who has it
//	epoch                no journal's epoch is above it
//	overruns             by which journals go on with a full disk
//	requests/            answers, as a log
//	sessions/ID/session  what is known of a session, JSON
//	sessions/ID/*.seg    its journal
package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/internal/filelock"
)

// ErrInUse reports a directory that another process has.
var ErrInUse = errors.New("another bridge uses the data directory")

// Config says how things are kept.
type Config struct {
	// Dir is the data directory; it is made if it is missing.
	Dir string
	// Journals says how journals are kept.
	Journals journal.WriterConfig
}

// Store is a data directory. Its methods may be called from any goroutine.
type Store struct {
	cfg    Config
	fs     segment.FS
	log    *slog.Logger
	lock   *os.File
	writer *journal.Writer

	mu        sync.Mutex
	lastEpoch uint64
	ceiling   *segment.Cell // epochs up to here may have been given
}

// epochAhead is how far epochs, which are milliseconds, are reserved ahead.
const epochAhead = uint64(time.Hour / time.Millisecond)

// lockPatience is how long a lock may outlive the process that held it.
const lockPatience = 2 * time.Second

// Open takes the directory. The caller must Close it, after the journals.
func Open(cfg Config) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "sessions"), 0o700); err != nil {
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(cfg.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	if err := filelock.Wait(ctx, lock); err != nil {
		_ = lock.Close()
		if errors.Is(err, filelock.ErrHeld) {
			err = ErrInUse
		}
		return nil, fmt.Errorf("data directory %q: %w", cfg.Dir, err)
	}
	if cfg.Journals.FS == nil {
		cfg.Journals.FS = segment.OS{}
	}
	if cfg.Journals.Logger == nil {
		cfg.Journals.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Journals.OverrunFile = filepath.Join(cfg.Dir, "overruns")
	s := &Store{cfg: cfg, fs: cfg.Journals.FS, log: cfg.Journals.Logger, lock: lock}
	s.ceiling, err = segment.OpenCell(s.fs, s.path("epoch"), true, func(text []byte) uint64 {
		// Once it was text. One that says nothing is no reason to give an epoch twice: the
		// clock goes on.
		epoch, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		return epoch
	})
	if s.ceiling == nil {
		_ = lock.Close()
		return nil, err
	}
	if err != nil {
		s.log.Warn("no room kept for epochs of a full disk", "error", err)
	}
	s.lastEpoch = s.ceiling.Get()
	s.writer = journal.NewWriter(cfg.Journals)
	return s, nil
}

// Close gives the directory back.
func (s *Store) Close() error {
	s.writer.Close()
	return s.lock.Close()
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.cfg.Dir}, parts...)...)
}

// Writer is what writes the journals.
func (s *Store) Writer() *journal.Writer { return s.writer }

// Degraded returns the journals that are not in step with the disk, by directory.
func (s *Store) Degraded() map[string]error { return s.writer.Degraded() }

// NextEpoch returns an epoch that no journal has had, and that is later than all of
// them.
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

// folder is the directory of a session. Names that differ in case alone stay apart where
// the file system does not tell them apart.
func (s *Store) folder(id string) string {
	name := strings.ToLower(id)
	if name != id {
		sum := sha256.Sum256([]byte(id))
		name += "=" + hex.EncodeToString(sum[:4])
	}
	return s.path("sessions", name)
}

// Journal opens a session's journal, or begins one with the epoch.
func (s *Store) Journal(id string, epoch uint64) (*journal.Disk, journal.Recovery, error) {
	return journal.OpenDisk(s.folder(id), epoch, s.writer)
}

// entry is what is kept of a session.
type entry struct {
	ID    string          `json:"id"`
	State json.RawMessage `json:"state"`
}

// Save keeps what is known of a session.
func (s *Store) Save(id string, state []byte) error {
	text, err := json.Marshal(entry{id, state})
	if err != nil {
		return err
	}
	if err := s.fs.MkdirAll(s.folder(id)); err != nil {
		return err
	}
	return segment.WriteFile(s.fs, filepath.Join(s.folder(id), "session"), text, s.cfg.Journals.Fsync != journal.FsyncNever)
}

// Remove forgets a session. Its journal must be closed.
func (s *Store) Remove(id string) error { return s.fs.RemoveAll(s.folder(id)) }

// Session returns what is known of a session, nil if nothing is.
func (s *Store) Session(id string) (json.RawMessage, error) {
	text, err := segment.ReadFile(s.fs, filepath.Join(s.folder(id), "session"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var e entry
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	return e.State, err
}

// Sessions returns what is known of every session, by id. What cannot be read is logged
// and left where it is.
func (s *Store) Sessions() (map[string]json.RawMessage, error) {
	folders, err := s.fs.ReadDir(s.path("sessions"))
	if err != nil {
		return nil, err
	}
	out := map[string]json.RawMessage{}
	for _, f := range folders {
		if !f.IsDir() {
			continue
		}
		text, err := segment.ReadFile(s.fs, s.path("sessions", f.Name(), "session"))
		if errors.Is(err, fs.ErrNotExist) {
			// Made and never answered: nobody knows of it.
			err = s.fs.RemoveAll(s.path("sessions", f.Name()))
			text = nil
		}
		var e entry
		if err == nil && text != nil {
			err = json.Unmarshal(text, &e)
		}
		if err == nil && e.ID != "" && s.folder(e.ID) != s.path("sessions", f.Name()) {
			err = fmt.Errorf("it says that it is session %q", e.ID)
		}
		if err != nil {
			s.log.Error("session not restored", "directory", f.Name(), "error", err)
			continue
		}
		if e.ID != "" {
			out[e.ID] = e.State
		}
	}
	return out, nil
}
