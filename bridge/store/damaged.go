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

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// Data of a user are never removed because a part of them is missing or damaged. The folder of such a session is
// moved unchanged to damaged/, with a file that gives the reason. It is reported until the session is restored or
// deleted.

// Files in a session's folder, apart from its journal.
const (
	// stateFile is the saved state of the session.
	stateFile = "session"
	// keyFile is the session's key as text, for the case that stateFile is unreadable.
	keyFile = "id"
	// openingFile exists until stateFile is written for the first time; keyFile exists from then on. A folder with
	// openingFile and neither of the others belongs to a session whose creation or resumption was never confirmed.
	openingFile = "opening"
	// damagedState is an unreadable stateFile.
	damagedState = "session.damaged"
	// reasonFile is the reason why the folder was set aside.
	reasonFile = "reason"
)

const damagedFolder = "damaged"

// Damaged returns the sessions whose data were set aside, ordered by place.
func (s *Store) Damaged() (out []backend.Damage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.damaged {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b backend.Damage) int { return strings.Compare(a.Place, b.Place) })
	return out
}

// DamageOf returns the damage of a session that was set aside.
func (s *Store) DamageOf(key string) (backend.Damage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damageOf(key)
}

// damageOf finds a session's damage by its folder, because the key of an old folder may not be known exactly. The
// caller holds mu.
func (s *Store) damageOf(key string) (backend.Damage, bool) {
	base := filepath.Base(s.folder(key))
	for _, d := range s.damaged {
		if name := filepath.Base(d.Place); name == base || strings.HasPrefix(name, base+"~") {
			return d, true
		}
	}
	return backend.Damage{}, false
}

// loadDamaged reads the list of sessions that earlier processes set aside.
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
		d := backend.Damage{Place: filepath.Join(damagedFolder, f.Name())}
		text, err := segment.ReadFile(s.fs, s.path(d.Place, reasonFile))
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		if err != nil {
			d.Reason = fmt.Sprintf("the reason is unknown: %v", err)
		}
		if d.Key == "" {
			d.Key = s.keyOf(d.Place)
		}
		s.damaged[d.Place] = d
	}
	return nil
}

// SetAside moves the data of a session to damaged/ unchanged. The session's journal must be closed. If moving fails,
// the data stay in place and are reported too.
func (s *Store) SetAside(key, reason string) error {
	return s.setAside(s.damageIn(filepath.Base(s.folder(key)), key, reason))
}

// damageIn describes the damage in a folder of sessions/. An empty key means that it is unknown.
func (s *Store) damageIn(folder, key, reason string) backend.Damage {
	d := backend.Damage{Key: key, Reason: reason, FoundAt: time.Now().UTC(), Place: filepath.Join("sessions", folder)}
	if key == "" {
		d.Key = s.keyOf(d.Place)
	}
	return d
}

// leave reports a session that cannot be read now but perhaps later: its data stay in place.
func (s *Store) leave(d backend.Damage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damaged[d.Place] = d
	s.log.Error("restoring a session failed", "session_id", d.Key, "directory", d.Place, "reason", d.Reason)
}

// setAside moves a damaged folder.
func (s *Store) setAside(d backend.Damage) error {
	folder := s.path(d.Place)
	values := s.moveAll(func(key string) bool { return s.folder(key) == folder })
	if err := errors.Join(values, s.logs.Move(folder)); err != nil {
		return err
	}
	text, err := json.Marshal(d)
	if err == nil { // without it the reason is in the log alone
		err = segment.WriteFile(s.fs, s.path(d.Place, reasonFile), text, s.syncs())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.confirmed, d.Key) // the next state goes to a file again
	place := filepath.Join(damagedFolder, filepath.Base(d.Place))
	for n := 2; s.damaged[place] != (backend.Damage{}); n++ {
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

// keyOf determines the session of a folder with unreadable state. The last resort is the folder's name, which has no
// capital letters.
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

// TakeUp moves a session that was set aside back, when a session with its key is opened: the new session continues
// the old journal. The unreadable state remains in the folder under another name.
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
	delete(s.confirmed, key) // the next state goes to a file again
	folder := s.folder(key)
	if place := s.path(d.Place); place != folder {
		if _, err := s.fs.Size(folder); err == nil {
			return fmt.Errorf("restoring session %q from %q: another session has its folder", key, d.Place)
		}
		if err := s.fs.Rename(place, folder); err != nil {
			return fmt.Errorf("restoring session %q from %q: %w", key, d.Place, err)
		}
	}
	delete(s.damaged, d.Place)
	s.log.Info("damaged session restored", "session_id", key, "directory", d.Place, "reason", d.Reason)
	return s.fs.RemoveAll(filepath.Join(folder, reasonFile))
}

// keepState renames an unreadable state file.
func (s *Store) keepState(place string) error {
	err := s.fs.Rename(s.path(place, stateFile), s.path(place, damagedState))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeDamaged deletes the data set aside for a session that is deleted. The caller holds mu.
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

// withoutState handles a folder without state. It removes a session that was never confirmed and has no user data,
// and sets all others aside.
func (s *Store) withoutState(folder string) error {
	path := s.path("sessions", folder)
	_, opening := s.fs.Size(filepath.Join(path, openingFile))
	if _, err := s.fs.Size(filepath.Join(path, keyFile)); opening == nil && errors.Is(err, fs.ErrNotExist) {
		s.log.Info("removed a session whose creation was never confirmed", "directory", folder)
		return s.discard(path)
	}
	if err := s.logs.Move(path); err != nil {
		return err
	}
	events, said := 0, false
	_, found, err := segment.Open(path, 1, segment.Options{FS: s.fs, SyncFiles: s.syncs()}, func(_ uint64, body []byte) error {
		r, err := journal.ParseRecord(journal.Position{}, body)
		events, said = events+1, said || err == nil && r.Type == "user.message"
		return err
	})
	if err == nil && !found.Damaged() && !said { // left by a version that had no openingFile
		s.log.Info("removed a session that was never confirmed or used", "directory", folder, "events", events)
		return s.discard(path)
	}
	return s.setAside(s.damageIn(folder, "", "the file with its state is missing"))
}

// discard removes a folder of sessions/, with what the joint log has for it.
func (s *Store) discard(folder string) error {
	err := s.fs.RemoveAll(folder)
	log := s.logs.Joint()
	for _, id := range log.Values() {
		if s.folder(id.Key) == folder {
			err = errors.Join(err, log.End(id.Key, s.always()))
		}
	}
	return err
}

// always reports whether nothing may be synced later.
func (s *Store) always() bool { return s.cfg.Journals.Fsync == journal.FsyncAlways }

func (s *Store) syncs() bool { return s.cfg.Journals.Fsync != journal.FsyncNever }
