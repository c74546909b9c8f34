package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/joint"
)

// moveAtEnd bounds the time for moving when the store is closed. The next process moves the rest.
const moveAtEnd = 2 * time.Second

// The latest state of each session is in the joint log until it is moved: it is then written to the file of its session. A
// file of its own costs the disk two syncs, a new file and a rename; states in the log share one write and one sync with the
// events of many sessions.
//
// Every state has a number, and later states have greater ones, also those of later processes. The file of a session
// has the number of its state, so a state in the log that is not newer than the file is ignored.

// lockValues takes saving. The returned function releases it.
func (s *Store) lockValues() (unlock func()) {
	s.saving <- struct{}{}
	return func() { <-s.saving }
}

// Save stores the states of sessions, and keeps the data of the states. An error names the sessions whose states are
// not stored. The first state that this process has of a session goes to its file, later ones go to the joint log
// first. With the policy "interval" the log is synced at once for states that may not be synced later.
func (s *Store) Save(states ...backend.State) error {
	var errs []error
	var logged []backend.State
	for _, state := range states {
		if s.isConfirmed(state.Key) {
			logged = append(logged, state)
		} else {
			errs = append(errs, s.saveFile(state))
		}
	}
	if len(logged) > 0 && s.saveInLog(logged) != nil {
		for _, state := range logged {
			errs = append(errs, s.saveFile(state))
		}
	}
	return errors.Join(errs...)
}

// saveInLog puts states into the log. After an error the caller must write the files of these sessions.
func (s *Store) saveInLog(states []backend.State) error {
	defer s.lockValues()()
	values := make([]joint.Value, len(states))
	for i, state := range states {
		s.lastState++
		values[i] = joint.Value{ID: stateOf(state.Key), Number: s.lastState, Body: state.Data}
	}
	now := slices.ContainsFunc(states, func(state backend.State) bool { return !state.Later })
	return s.logs.Joint().Put(values, now || s.always())
}

// saveFile writes the file of a session, which from then on has its latest state, and marks its folder.
func (s *Store) saveFile(state backend.State) error {
	defer s.lockValues()()
	s.lastState++
	v, _ := s.logs.Joint().Value(stateOf(state.Key))
	err := s.writeState(state.Key, state.Data, s.lastState)
	if err == nil {
		s.logs.Joint().Moved(v)
		err = s.confirm(state.Key)
	}
	if err != nil {
		return fmt.Errorf("session %q: %w", state.Key, err)
	}
	return nil
}

func stateOf(key string) joint.ID { return joint.ID{Key: key, Kind: joint.State} }

// forgetValues drops what the log has of a session that is being deleted. It waits for move, which would make the session's
// folder again.
func (s *Store) forgetValues(key string) {
	defer s.lockValues()()
	s.logs.Joint().Forget(key)
}

// move writes a value to its file, if it is in the joint log only.
func (s *Store) move(id joint.ID) error {
	defer s.lockValues()()
	log := s.logs.Joint()
	v, ok := log.Value(id)
	if !ok {
		return nil
	}
	var err error
	if id.Kind == joint.State {
		err = s.writeState(id.Key, v.Body, v.Number)
	} else {
		err = s.outbox(id.Key).write(outboxState, v.Body, s.syncs())
	}
	if err != nil {
		return fmt.Errorf("session %q: %w", id.Key, err)
	}
	log.Moved(v)
	return nil
}

// moveAll moves the values of the sessions that which accepts.
func (s *Store) moveAll(which func(key string) bool) error {
	var errs []error
	for _, id := range s.logs.Joint().Values() {
		if which(id.Key) {
			errs = append(errs, s.move(id))
		}
	}
	return errors.Join(errs...)
}

// adopt takes over the values that an earlier process has not moved. The numbers of this process are above those of all
// earlier ones.
func (s *Store) adopt() error {
	log := s.logs.Joint()
	epoch, _ := s.NextEpoch() // without a reservation it is still later than all of this process
	s.lastState = epoch << numbersInEpoch
	var errs []error
	for _, id := range log.Values() {
		v, _ := log.Value(id)
		if _, err := s.fs.ReadDir(s.folder(id.Key)); errors.Is(err, fs.ErrNotExist) { // the session was deleted
			errs = append(errs, log.End(id.Key, s.always()))
			continue
		}
		if id.Kind != joint.State {
			continue
		}
		s.lastState = max(s.lastState, v.Number)
		e, err := s.read(filepath.Base(s.folder(id.Key)))
		if errors.Is(err, fs.ErrNotExist) || err == nil && e.Number >= v.Number { // it is set aside, or has a later one
			log.Moved(v)
		}
	}
	return errors.Join(errs...)
}

// numbersInEpoch is the number of bits for the states of a process in an epoch. Epochs are milliseconds.
const numbersInEpoch = 20
