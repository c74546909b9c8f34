package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/joint"
)

// settleAtEnd bounds the time for settling when the store is closed. The next process settles the rest.
const settleAtEnd = 2 * time.Second

// states are the states of sessions. The latest of each is in the joint log until it is settled: it is then written to the
// file of its session. A file of its own costs the disk two syncs, a new file and a rename; states in the log share one
// write and one sync with the events of many sessions.
//
// Every state has a number, and later states have greater ones, also those of later processes. The file of a session
// has the number of its state, so a state in the log that is not newer than the file is ignored.
//
// It is safe for concurrent use.
type states struct {
	log *joint.Log
	// always: no state may be synced later.
	always bool
	// file writes the file of a session.
	file func(key string, state []byte, number uint64) error
	// busy has capacity 1. Its holder saves or settles a state, and may use last.
	busy chan struct{}
	last uint64 // no state has a greater number
}

// lock takes busy. The returned function releases it.
func (l *states) lock() (unlock func()) {
	l.busy <- struct{}{}
	return func() { <-l.busy }
}

// adopt takes over the states that an earlier process has not settled. number returns the number in the file of a session.
func (l *states) adopt(number func(key string) (uint64, error)) {
	for _, key := range l.log.Values() {
		v, _ := l.log.Value(key)
		l.last = max(l.last, v.Number)
		saved, err := number(key)
		if errors.Is(err, fs.ErrNotExist) || err == nil && saved >= v.Number { // the session was deleted, or has a later one
			l.log.Settled(key, v.Number)
		}
	}
}

// save puts states into the log. After an error the caller must write the files of these sessions.
func (l *states) save(states []backend.State) error {
	defer l.lock()()
	values := make([]joint.Value, len(states))
	for i, s := range states {
		l.last++
		values[i] = joint.Value{Key: s.Key, Number: l.last, Body: s.Data}
	}
	return l.log.Put(values, l.always || slices.ContainsFunc(states, func(s backend.State) bool { return !s.Later }))
}

// saveFile writes the file of a session, which from then on has its latest state.
func (l *states) saveFile(s backend.State) error {
	defer l.lock()()
	l.last++
	err := l.file(s.Key, s.Data, l.last)
	if err == nil {
		l.log.Settled(s.Key, l.last)
	}
	return err
}

// settle writes the state of a session to its file, if it is in the log only.
func (l *states) settle(key string) error {
	defer l.lock()()
	v, ok := l.log.Value(key)
	if !ok {
		return nil
	}
	if err := l.file(key, v.Body, v.Number); err != nil {
		return fmt.Errorf("session %q: %w", key, err)
	}
	l.log.Settled(key, v.Number)
	return nil
}

// forget drops the state of a session that is being deleted. It waits for settle, which would make the session's folder
// again.
func (l *states) forget(key string) {
	defer l.lock()()
	l.log.Settled(key, math.MaxUint64)
}

// settleAll settles states until a time.
func (l *states) settleAll(until time.Time) error {
	var errs []error
	for _, key := range l.log.Values() {
		if time.Now().After(until) {
			break
		}
		errs = append(errs, l.settle(key))
	}
	return errors.Join(errs...)
}

// Save stores the states of sessions, and keeps the data of the states. An error names the sessions whose states are
// not stored. The first state that this process has of a session goes to its file, later ones go to the joint log
// first. With the policy "interval" the log is synced at once for states that may not be synced later.
func (s *Store) Save(states ...backend.State) error {
	var errs []error
	var logged []backend.State
	for _, state := range states {
		if s.isNamed(state.Key) {
			logged = append(logged, state)
		} else {
			errs = append(errs, s.saveFile(state))
		}
	}
	if len(logged) > 0 && s.states.save(logged) != nil {
		for _, state := range logged {
			errs = append(errs, s.saveFile(state))
		}
	}
	return errors.Join(errs...)
}

// saveFile writes the file of a session and marks its folder.
func (s *Store) saveFile(state backend.State) error {
	err := s.states.saveFile(state)
	if err == nil {
		err = s.name(state.Key)
	}
	if err != nil {
		return fmt.Errorf("session %q: %w", state.Key, err)
	}
	return nil
}

// openStates takes over the states of an earlier process. The numbers of this process are above those of all earlier ones.
func (s *Store) openStates() {
	s.states.log, s.states.always = s.logs.Joint(), s.cfg.Journals.Fsync == journal.FsyncAlways
	epoch, _ := s.NextEpoch() // without a reservation it is still later than all of this process
	s.states.last = max(s.states.last, epoch<<numbersInEpoch)
	s.states.adopt(s.numberOf)
}

// numberOf returns the number of the state in the file of a session.
func (s *Store) numberOf(key string) (uint64, error) {
	e, err := s.read(filepath.Base(s.folder(key)))
	return e.Number, err
}

// numbersInEpoch is the number of bits for the states of a process in an epoch. Epochs are milliseconds.
const numbersInEpoch = 20
