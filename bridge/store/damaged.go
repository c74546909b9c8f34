package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// Nothing that may hold a user's data is removed because a part of it is missing or damaged.
// The folder of such a session is moved to damaged/ as it is, with a file that says why, and
// is told of until it is taken up or deleted.

// The files of a session's folder beside its journal.
const (
	// stateFile is what is known of the session.
	stateFile = "session"
	// keyFile is the session's key as text, for when stateFile is gone.
	keyFile = "id"
	// openingFile is there until stateFile was written for the first time, and keyFile from then
	// on. A folder with the one and without the other two is of a session whose creation or
	// resumption was never answered.
	openingFile = "opening"
	// damagedState is a stateFile that could not be read.
	damagedState = "session.damaged"
	// reasonFile says why the folder was set aside.
	reasonFile = "reason"
)

const damagedFolder = "damaged"

// Damage tells of a session whose data were set aside.
type Damage struct {
	// Key is the session's, as far as it is known.
	Key string `json:"key"`
	// Reason is what is wrong with the data.
	Reason string `json:"reason"`
	// FoundAt is when that was found.
	FoundAt time.Time `json:"foundAt"`
	// Place is the folder with the data, within the data directory.
	Place string `json:"-"`
}

// Damaged returns the sessions whose data were set aside, ordered by place.
func (s *Store) Damaged() (out []Damage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.damaged {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Damage) int { return strings.Compare(a.Place, b.Place) })
	return out
}

// DamageOf returns what is wrong with the data of a session that was set aside.
func (s *Store) DamageOf(key string) (Damage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damageOf(key)
}

// damageOf finds a session's damage by its folder: of an old one the key may not be known to
// the letter. The caller holds mu.
func (s *Store) damageOf(key string) (Damage, bool) {
	base := filepath.Base(s.folder(key))
	for _, d := range s.damaged {
		if name := filepath.Base(d.Place); name == base || strings.HasPrefix(name, base+"~") {
			return d, true
		}
	}
	return Damage{}, false
}

// loadDamaged reads which sessions earlier lives have set aside.
func (s *Store) loadDamaged() error {
	folders, err := s.fs.ReadDir(s.path(damagedFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range folders {
		if !f.IsDir() {
			continue
		}
		d := Damage{Place: filepath.Join(damagedFolder, f.Name())}
		text, err := segment.ReadFile(s.fs, s.path(d.Place, reasonFile))
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		if err != nil {
			d.Reason = fmt.Sprintf("the reason is not known: %v", err)
		}
		if d.Key == "" {
			d.Key = s.keyOf(d.Place)
		}
		s.damaged[d.Place] = d
	}
	return nil
}

// SetAside moves the data of a session out of the way, as they are. Its journal must be closed.
// Where they cannot be moved they stay, and are told of all the same.
func (s *Store) SetAside(key, reason string) error {
	return s.setAside(s.damageIn(filepath.Base(s.folder(key)), key, reason))
}

// damageIn describes what is wrong in a folder of sessions/, whose key may be empty for unknown.
func (s *Store) damageIn(folder, key, reason string) Damage {
	d := Damage{Key: key, Reason: reason, FoundAt: time.Now().UTC(), Place: filepath.Join("sessions", folder)}
	if key == "" {
		d.Key = s.keyOf(d.Place)
	}
	return d
}

// leave tells of a session that cannot be read now, and may be later: its data stay in place.
func (s *Store) leave(d Damage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damaged[d.Place] = d
	s.log.Error("session not restored", "session_id", d.Key, "directory", d.Place, "reason", d.Reason)
}

// setAside moves a folder that is damaged.
func (s *Store) setAside(d Damage) error {
	text, err := json.Marshal(d)
	if err == nil { // without it the reason is in the log alone
		err = segment.WriteFile(s.fs, s.path(d.Place, reasonFile), text, s.syncs())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	place := filepath.Join(damagedFolder, filepath.Base(d.Place))
	for n := 2; s.damaged[place] != (Damage{}); n++ {
		place = filepath.Join(damagedFolder, filepath.Base(d.Place)+"~"+strconv.Itoa(n))
	}
	moved := s.fs.MkdirAll(s.path(damagedFolder))
	if moved == nil {
		moved = s.fs.Rename(s.path(d.Place), s.path(place))
	}
	if moved == nil {
		d.Place = place
		if s.syncs() {
			err = errors.Join(err, s.fs.SyncDir(s.path("sessions")), s.fs.SyncDir(s.path(damagedFolder)))
		}
	}
	s.damaged[d.Place] = d
	s.log.Error("session set aside as damaged", "session_id", d.Key, "directory", d.Place, "reason", d.Reason)
	return errors.Join(err, moved)
}

// keyOf finds out whose the data of a folder are when its state cannot be read. The last
// resort is the folder's name, which has no capital letters.
func (s *Store) keyOf(place string) string {
	folder := strings.TrimPrefix(strings.TrimPrefix(place, damagedFolder), "sessions")[1:]
	folder, _, _ = strings.Cut(folder, "~")
	if text, err := segment.ReadFile(s.fs, s.path(place, keyFile)); err == nil {
		if filepath.Base(s.folder(string(text))) == folder {
			return string(text)
		}
	}
	name, _, _ := strings.Cut(folder, "=")
	return name
}

// TakeUp puts what is left of a session that was set aside back in its place, for a session
// that is opened under its key: its journal, that is. The state that could not be read stays
// beside it under another name.
func (s *Store) TakeUp(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.damageOf(key)
	if !ok {
		return nil
	}
	if err := s.keepState(d.Place); err != nil {
		return err
	}
	folder := s.folder(key)
	if place := s.path(d.Place); place != folder {
		if _, err := s.fs.Size(folder); err == nil {
			return fmt.Errorf("taking up session %q from %q: there is another one at its place", key, d.Place)
		}
		if err := s.fs.Rename(place, folder); err != nil {
			return fmt.Errorf("taking up session %q from %q: %w", key, d.Place, err)
		}
	}
	delete(s.damaged, d.Place)
	s.log.Info("damaged session taken up", "session_id", key, "directory", d.Place, "reason", d.Reason)
	return s.fs.RemoveAll(filepath.Join(folder, reasonFile))
}

// keepState gives a state that cannot be read the name under which it is kept.
func (s *Store) keepState(place string) error {
	err := s.fs.Rename(s.path(place, stateFile), s.path(place, damagedState))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeDamaged removes what was set aside of a session that is deleted. The caller holds mu.
func (s *Store) removeDamaged(key string) error {
	for {
		d, ok := s.damageOf(key)
		if !ok {
			return nil
		}
		if err := s.fs.RemoveAll(s.path(d.Place)); err != nil {
			return err
		}
		delete(s.damaged, d.Place)
	}
}

// withoutState decides about a folder that has no state: what nobody was told of, and
// holds nothing that a user said, is removed, and anything else is set aside.
func (s *Store) withoutState(folder string) error {
	path := s.path("sessions", folder)
	_, opening := s.fs.Size(filepath.Join(path, openingFile))
	if _, err := s.fs.Size(filepath.Join(path, keyFile)); opening == nil && errors.Is(err, fs.ErrNotExist) {
		s.log.Info("session removed whose opening was never answered", "directory", folder)
		return s.fs.RemoveAll(path)
	}
	disk, found, err := journal.OpenDisk(path, 1, s.writer)
	said := err != nil || found.Skipped > 0 || found.Cut > 0 || len(found.SetAside) > 0 || disk.Found("user.message")
	if !said { // left by a version that had no openingFile
		s.log.Info("session removed that was never answered or used", "directory", folder, "events", found.Events)
		return s.fs.RemoveAll(path)
	}
	return s.setAside(s.damageIn(folder, "", "the file with its state is missing"))
}

func (s *Store) syncs() bool { return s.cfg.Journals.Fsync != journal.FsyncNever }
