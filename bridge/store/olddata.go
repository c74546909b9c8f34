package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// format is the number of the directory's format. Versions before the cell of that name wrote format 1. It grows when an
// older version would lose or misread what this one writes.
const format = 2

// convert makes a directory of an earlier version one of this version's format. After a kill the next start goes on with it.
func (s *Store) convert() error {
	cell, err := segment.OpenCell(s.fs, s.path("format"), s.syncs(), func([]byte) uint64 { return 0 })
	if cell == nil {
		return err
	}
	if found := cell.Get(); found > format {
		return fmt.Errorf("%w %q: its format is %d, and this version knows formats up to %d; start the later version, "+
			"or choose another directory", ErrLater, s.cfg.Dir, found, format)
	}
	if err := s.convertStates(); err != nil {
		return err
	}
	if err := cell.Raise(format); err != nil { // a full disk is no reason not to start
		s.log.Warn("noting the format of the data directory failed", "error", err)
	}
	return nil
}

// oldStates is the folder in which earlier versions had the log of states.
const oldStates = "states"

// convertStates writes the states that an earlier version left in a log of their own to the files of their sessions, and
// removes that log. After a kill the next start does the rest.
func (s *Store) convertStates() error {
	if _, err := s.fs.ReadDir(s.path(oldStates)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	type state struct {
		text   []byte
		number uint64
	}
	latest := map[string]state{}
	log, found, err := segment.Open(s.path(oldStates), 1, segment.Options{FS: s.fs, SyncFiles: s.syncs()},
		func(number uint64, body []byte) error {
			rest := segment.NewBody(body)
			key := string(rest.Text())
			if !rest.OK {
				return errState
			}
			latest[key] = state{slices.Clone(rest.Rest), number}
			return nil
		})
	if err != nil {
		return fmt.Errorf("opening the log of session states: %w", err)
	}
	if found.Damaged() {
		s.log.Warn("some changes of sessions were lost", "bytes", found.Cut+found.Skipped, "files", len(found.SetAside))
	}
	for key, l := range latest {
		e, err := s.read(filepath.Base(s.folder(key)))
		if errors.Is(err, fs.ErrNotExist) || err == nil && e.Number >= l.number {
			continue // the session was deleted, or has a later one
		}
		if err := s.writeState(key, l.text, l.number); err != nil {
			return fmt.Errorf("session %q: %w", key, err)
		}
	}
	return errors.Join(log.Rest(), s.fs.RemoveAll(s.path(oldStates)))
}
