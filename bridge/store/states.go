package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

const (
	// settleEvery bounds how long a state is in the log only.
	settleEvery = time.Minute
	// maxStates is the size in bytes of the log above which its states are settled before that.
	maxStates = 32 << 20
	// settleAtEnd bounds the time for settling when the store is closed. The next process settles the rest.
	settleAtEnd = 2 * time.Second
)

// stateLog has the latest states of sessions, until they are settled: each is then written to the file of its session.
// A file of its own costs the disk two syncs, a new file and a rename; states in the log share one write and one sync.
//
// Every state has a number, and later states have greater ones, also those of later processes. The file of a session
// has the number of its state, so an entry of the log that is not newer than the file is ignored.
//
// A stateLog is safe for concurrent use. Its mutex guards the log and the states, and is held while the disk works.
type stateLog struct {
	fs    segment.FS
	dir   string
	syncs bool
	// interval is the longest time for which a state that may be synced later is not synced; 0 syncs it at once.
	interval time.Duration
	log      *slog.Logger
	// file writes the file of a session.
	file func(key string, state []byte, number uint64) error
	kick chan struct{} // capacity 1: the states are to be settled
	wait chan struct{} // capacity 1: a sync is due after the interval
	stop chan struct{}
	runs sync.WaitGroup

	mu      sync.Mutex
	entries *segment.Log // nil after a failure to open it
	last    uint64       // no state has a greater number
	renew   bool         // a sync failed: what it was to make safe has to be written anew
	late    bool         // states are not synced
	states  map[string]numbered
}

// numbered is a state of a session with its number.
type numbered struct {
	number uint64
	text   []byte
}

// openStates opens the log with the states that an earlier process has not settled. number returns the number in the
// file of a session. The numbers of this process are above base. The caller must close the log.
func (l *stateLog) openStates(base uint64, number func(key string) (uint64, error)) error {
	l.states, l.kick, l.stop = map[string]numbered{}, make(chan struct{}, 1), make(chan struct{})
	l.wait = make(chan struct{}, 1)
	found, err := l.open(func(number uint64, body []byte) error {
		key, text, ok := cutKey(body)
		if !ok {
			return errState
		}
		l.states[key] = numbered{number, slices.Clone(text)}
		return nil
	})
	if err != nil {
		return fmt.Errorf("opening the log of session states: %w", err)
	}
	if found.Damaged() {
		l.log.Warn("some changes of sessions were lost", "bytes", found.Cut+found.Skipped, "files", len(found.SetAside))
	}
	l.last = max(l.entries.Last(), base)
	maps.DeleteFunc(l.states, func(key string, s numbered) bool {
		saved, err := number(key)
		if errors.Is(err, fs.ErrNotExist) {
			return true // the session was deleted
		}
		return err == nil && saved >= s.number
	})
	l.runs.Go(l.run)
	l.runs.Go(l.runSyncs)
	return nil
}

// open opens the log. The caller holds mu, unless nothing else uses the log yet.
func (l *stateLog) open(visit func(number uint64, body []byte) error) (found segment.Recovered, err error) {
	l.entries, found, err = segment.Open(l.dir, 1, segment.Options{FS: l.fs, SyncFiles: l.syncs}, visit)
	return found, err
}

// appendKey appends the part of an entry before the state.
func appendKey(dst []byte, key string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(key))), key...)
}

func cutKey(body []byte) (key string, state []byte, ok bool) {
	n, size := binary.Uvarint(body)
	if size <= 0 || n > uint64(len(body)-size) {
		return "", nil, false
	}
	body = body[size:]
	return string(body[:n]), body[n:], true
}

// save appends states. After an error the caller must write the files of these sessions.
func (l *stateLog) save(states []backend.State) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return err
	}
	entries := make([]segment.Entry, len(states))
	for i, s := range states {
		l.last++
		entries[i] = segment.Entry{Number: l.last, Head: appendKey(nil, s.Key), Body: s.Data}
	}
	if err := l.entries.Append(entries); err != nil {
		return err
	}
	if err := l.syncOrWait(states); err != nil {
		return err
	}
	for i, s := range states {
		l.states[s.Key] = numbered{entries[i].Number, s.Data}
	}
	if l.entries.Size() > maxStates {
		l.settleSoon()
	}
	return nil
}

// settleSoon has run settle the states now.
func (l *stateLog) settleSoon() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// syncOrWait syncs the log, unless all states that were appended may be synced later. The caller holds mu.
func (l *stateLog) syncOrWait(states []backend.State) error {
	now := l.interval == 0 || slices.ContainsFunc(states, func(s backend.State) bool { return !s.Later })
	switch {
	case l.syncs && now:
		return l.sync()
	case l.syncs && !l.late:
		l.late = true
		select {
		case l.wait <- struct{}{}:
		default:
		}
	}
	return nil
}

// sync syncs the log. The caller holds mu.
func (l *stateLog) sync() error {
	if _, err := l.entries.Sync(); err != nil {
		l.renew = true
		return err
	}
	l.late = false
	return nil
}

// syncLate syncs states that were to be synced later. If that fails, run writes them to the files of their sessions.
func (l *stateLog) syncLate() {
	l.mu.Lock()
	var err error
	if l.late {
		if err = l.ready(); err == nil {
			err = l.sync()
		}
		l.late = false
	}
	l.mu.Unlock()
	if err != nil {
		l.log.Warn("syncing the states of sessions failed", "error", err)
		l.settleSoon()
	}
}

// ready prepares the log for an append after a failure. The caller holds mu.
func (l *stateLog) ready() error {
	if l.entries == nil {
		if _, err := l.open(func(uint64, []byte) error { return nil }); err != nil {
			l.entries = nil
			return err
		}
	}
	if l.renew {
		if err := l.entries.Renew(); err != nil {
			return err
		}
		l.renew = false
	}
	return nil
}

// saveFile writes the file of a session, which from then on has its latest state.
func (l *stateLog) saveFile(s backend.State) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	err := l.file(s.Key, s.Data, l.last)
	if err == nil {
		delete(l.states, s.Key)
	}
	return err
}

// get returns the state of a session, unless its file has it.
func (l *stateLog) get(key string) (text []byte, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.states[key]
	return s.text, ok
}

// keys returns the sessions whose latest states are in the log only.
func (l *stateLog) keys() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.states))
}

// forget drops the state of a session that is being deleted.
func (l *stateLog) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.states, key)
}

// settle writes the state of a session to its file, if it is in the log only.
func (l *stateLog) settle(key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.states[key]
	if !ok {
		return nil
	}
	if err := l.file(key, s.text, s.number); err != nil {
		return fmt.Errorf("session %q: %w", key, err)
	}
	delete(l.states, key)
	return nil
}

// settleAll settles all states and empties the log. It stops at a time, or if that is zero when the log is closed, and
// leaves the rest. Other calls wait for one file at most.
func (l *stateLog) settleAll(until time.Time) error {
	l.mu.Lock()
	if l.entries == nil || l.entries.Size() == 0 {
		l.mu.Unlock()
		return nil
	}
	through := l.entries.Last()
	l.mu.Unlock()
	var errs []error
	for _, key := range l.keys() {
		if until.IsZero() && l.stopped() || !until.IsZero() && time.Now().After(until) {
			return errors.Join(errs...)
		}
		errs = append(errs, l.settle(key))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drop(through)
}

func (l *stateLog) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// drop removes the entries up to a number from the log, as far as they are in files without later ones. The caller
// holds mu.
func (l *stateLog) drop(through uint64) error {
	if l.entries.Last() == through {
		err := errors.Join(l.entries.Rest(), l.fs.RemoveAll(l.dir))
		l.entries, l.renew = nil, false
		return errors.Join(err, l.ready())
	}
	for {
		last, ok := l.entries.Oldest()
		if !ok || last > through {
			return nil
		}
		if err := l.entries.DropOldest(); err != nil {
			return err
		}
	}
}

// run settles the states from time to time.
func (l *stateLog) run() {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-l.kick:
		case <-l.stop:
			return
		}
		l.tidy(time.Time{})
	}
}

// runSyncs syncs the states that are to be synced later, also while run settles others.
func (l *stateLog) runSyncs() {
	for {
		select {
		case <-l.wait:
		case <-l.stop:
			return
		}
		select {
		case <-time.After(l.interval):
			l.syncLate()
		case <-l.stop:
			return
		}
	}
}

// tidy is settleAll; it logs an error, after which the states stay in the log.
func (l *stateLog) tidy(until time.Time) {
	if err := l.settleAll(until); err != nil {
		l.log.Warn("moving the states of sessions to their files failed", "error", err)
	}
}

// close settles what it can, and closes the log.
func (l *stateLog) close() error {
	close(l.stop)
	l.runs.Wait()
	l.syncLate()
	l.tidy(time.Now().Add(settleAtEnd))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries == nil {
		return nil
	}
	return l.entries.Rest()
}

// Save stores the states of sessions, and keeps the data of the states. An error names the sessions whose states are
// not stored. The first state that this process has of a session goes to its file, later ones go to the log of states
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

// openStates opens the log of states.
func (s *Store) openStates() error {
	s.states = &stateLog{fs: s.fs, dir: s.path("states"), syncs: s.syncs(), log: s.log, file: s.writeState}
	if p := s.cfg.Journals.Fsync; p == journal.FsyncInterval || p == "" {
		s.states.interval = cmp.Or(s.cfg.Journals.Interval, journal.DefaultFsyncInterval)
	}
	epoch, _ := s.NextEpoch() // without a reservation it is still later than all of this process
	return s.states.openStates(epoch<<numbersInEpoch, func(key string) (uint64, error) {
		e, err := s.read(filepath.Base(s.folder(key)))
		return e.Number, err
	})
}

// numbersInEpoch is the number of bits for the states of a process in an epoch. Epochs are milliseconds.
const numbersInEpoch = 20
