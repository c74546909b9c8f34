package store_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// openOn opens a store whose files are in fs.
func openOn(fs *faultfs.FS, dir string) (*store.Store, error) {
	return store.Open(store.Config{Dir: dir, Journals: journal.WriterConfig{FS: fs}})
}

// moved is the time in which states move to the files of their sessions.
const moved = 2*time.Minute + 3*time.Second

func stateOf(key string, n int) backend.State {
	return backend.State{Key: key, Data: strconv.AppendInt(nil, int64(n), 10)}
}

// saved returns the number that was saved last of each session.
func saved(t *testing.T, s *store.Store) map[string]int {
	t.Helper()
	sessions, err := s.Sessions()
	must(t, err)
	out := map[string]int{}
	for key, state := range sessions {
		n, err := strconv.Atoi(string(state))
		must(t, err)
		out[key] = n
	}
	return out
}

// Whenever a process dies, the next one finds a state of each session that is at least as late as the last one that
// was saved, and no session that was deleted.
func TestStatesSurviveACrash(t *testing.T) {
	t.Parallel()
	for _, power := range []bool{false, true} {
		steps := 0
		for more := true; more; steps++ {
			t.Run(fmt.Sprintf("power failure %v, after %d changes", power, steps), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { more = crashed(t, power, steps) })
			})
		}
		if steps < 30 {
			t.Errorf("the process made %d changes", steps)
		}
	}
}

// crashed saves states in a process that dies after some changes of files, and in a next one. It reports whether the
// first one died.
func crashed(t *testing.T, power bool, steps int) bool {
	fs, dir := &faultfs.FS{}, t.TempDir()
	tried, least := map[string]int{}, map[string]int{}
	var done, mayBeGone = map[string]bool{}, false
	save := func(s *store.Store, n int, keys ...string) {
		var states []backend.State
		for _, key := range keys {
			tried[key] = n
			states = append(states, stateOf(key, n))
		}
		if s.Save(states...) == nil {
			for _, key := range keys {
				least[key], done[key] = n, true
			}
		}
	}
	check := func(s *store.Store) {
		t.Helper()
		got := saved(t, s)
		for key, n := range got {
			if n < least[key] || n > tried[key] {
				t.Errorf("%s has state %d, not one from %d to %d", key, n, least[key], tried[key])
			}
		}
		for key := range done {
			if _, ok := got[key]; !ok && (key != "b" || !mayBeGone) {
				t.Errorf("%s is lost", key)
			}
		}
	}
	s, err := openOn(fs, dir)
	must(t, err)
	fs.CrashAfter(steps)
	save(s, 1, "a")
	save(s, 1, "b")
	save(s, 2, "a", "b")
	save(s, 3, "b")
	time.Sleep(moved)
	save(s, 4, "a", "b")
	mayBeGone = true
	if s.Remove("b") == nil {
		mayBeGone = false
		delete(done, "b")
		least["b"] = 5 // of the next session of that name
		save(s, 5, "b")
	}
	save(s, 6, "a")
	save(s, 7, "a")
	alive := least["a"] == 7
	if !alive {
		_ = s.Close() // the disk is gone
	}
	next := fs.Restart(power)
	if alive {
		must(t, s.Close())
	}
	s, err = openOn(next, dir)
	must(t, err)
	check(s)
	save(s, 8, "a")
	save(s, 9, "a")
	after := next.Restart(power)
	must(t, s.Close())
	s, err = openOn(after, dir)
	must(t, err)
	check(s)
	must(t, s.Close())
	return !alive
}

// States that are saved together cost one write and one sync, and are in the files of their sessions two minutes later.
// Then nothing is left in the log, of a deleted session neither.
func TestStatesAreMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs, dir := &faultfs.FS{}, t.TempDir()
		s, err := openOn(fs, dir)
		must(t, err)
		var first, second []backend.State
		for i := range 100 {
			key := "s" + strconv.Itoa(i)
			first, second = append(first, stateOf(key, 1)), append(second, stateOf(key, 2))
		}
		must(t, s.Save(first...))
		must(t, s.Save(second[:1]...)) // which makes the log's file
		fs.CrashAfter(1)
		must(t, s.Save(second...))
		fs.CrashAfter(1 << 20)
		file := filepath.Join(dir, "sessions", "s7", "session")
		if text := string(fs.Content(file)); !strings.Contains(text, `"state":1`) {
			t.Errorf("at first the file has %s", text)
		}
		if state, err := s.Session("s7"); err != nil || string(state) != "2" {
			t.Errorf("the state is %s, %v", state, err)
		}
		must(t, s.Remove("s8"))
		time.Sleep(moved)
		synctest.Wait()
		if text := string(fs.Content(file)); !strings.Contains(text, `"state":2`) {
			t.Errorf("two minutes later the file has %s", text)
		}
		for _, name := range fs.Names() {
			if strings.HasPrefix(name, filepath.Join(dir, "journals")) || strings.Contains(name, "s8/") {
				t.Errorf("%s is left", name)
			}
		}
		if got := saved(t, s); len(got) != 99 || got["s7"] != 2 {
			t.Errorf("sessions are %v", got)
		}
		must(t, s.Close())
	})
}

// A state that is saved while earlier ones leave the log stays there.
func TestDropKeepsLaterStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs, dir := &faultfs.FS{}, t.TempDir()
		s, err := openOn(fs, dir)
		must(t, err)
		must(t, s.Save(stateOf("a", 1), stateOf("b", 1)))
		must(t, s.Save(stateOf("a", 2)))
		time.Sleep(moved - 10*time.Second)
		must(t, s.Save(stateOf("b", 2)))
		time.Sleep(20 * time.Second)
		if text := string(fs.Content(filepath.Join(dir, "sessions", "a", "session"))); !strings.Contains(text, `"state":2`) {
			t.Errorf("the file has %s", text)
		}
		next := fs.Restart(true)
		must(t, s.Close())
		s, err = openOn(next, dir)
		must(t, err)
		if got := saved(t, s); got["a"] != 2 || got["b"] != 2 {
			t.Errorf("sessions are %v", got)
		}
		must(t, s.Close())
	})
}

// A session is deleted once its state is moved that is on the way to its file: moving would make its folder again.
func TestRemoveWaitsForMoving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs, dir := &faultfs.FS{}, t.TempDir()
		s, err := openOn(fs, dir)
		must(t, err)
		must(t, s.Save(stateOf("a", 1)))
		must(t, s.Save(stateOf("a", 2)))
		release := fs.StallIn(filepath.Join(dir, "sessions", "a"))
		time.Sleep(moved)
		removed := make(chan error, 1)
		go func() { removed <- s.Remove("a") }()
		synctest.Wait()
		if len(removed) > 0 {
			t.Error("the session is deleted while its state is written")
		}
		release()
		must(t, <-removed)
		time.Sleep(moved)
		for _, name := range fs.Names() {
			if strings.HasPrefix(name, filepath.Join(dir, "sessions", "a")) {
				t.Errorf("%s is left", name)
			}
		}
		must(t, s.Close())
	})
}

// While the log cannot be written, states go to the files of their sessions; after a failed sync the log is written
// anew.
func TestStatesWithoutALog(t *testing.T) {
	t.Parallel()
	for _, op := range []faultfs.Op{faultfs.Open, faultfs.Sync} {
		t.Run(string(op), func(t *testing.T) {
			t.Parallel()
			fs, dir := &faultfs.FS{}, t.TempDir()
			s, err := openOn(fs, dir)
			must(t, err)
			must(t, s.Save(stateOf("a", 1), stateOf("b", 1)))
			must(t, s.Save(stateOf("a", 2)))
			fs.Fail(op, fmt.Errorf("no %s", op))
			if err := s.Save(stateOf("a", 3), stateOf("b", 3)); op == faultfs.Sync &&
				(err == nil || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), `"b"`)) {
				t.Errorf("without a sync the error is %v", err)
			}
			fs.Fail(op, nil)
			must(t, s.Save(stateOf("a", 4)))
			must(t, s.Save(stateOf("b", 4)))
			next := fs.Restart(true)
			must(t, s.Close())
			s, err = openOn(next, dir)
			must(t, err)
			if got := saved(t, s); got["a"] != 4 || got["b"] != 4 {
				t.Errorf("sessions are %v", got)
			}
			must(t, s.Close())
		})
	}
}

// A state in the log serves a session whose file is damaged.
func TestStateInTheLogOfADamagedFile(t *testing.T) {
	t.Parallel()
	fs, dir := &faultfs.FS{}, t.TempDir()
	s, err := openOn(fs, dir)
	must(t, err)
	must(t, s.Save(stateOf("a", 1)))
	must(t, s.Save(stateOf("a", 2)))
	next := fs.Restart(false)
	must(t, s.Close())
	next.Put(filepath.Join(dir, "sessions", "a", "session"), []byte("{"))
	s, err = openOn(next, dir)
	must(t, err)
	if got := saved(t, s); got["a"] != 2 || len(s.Damaged()) > 0 {
		t.Errorf("sessions are %v, damaged are %v", got, s.Damaged())
	}
	must(t, s.SetAside("a", "why not"))
	if got := saved(t, s); len(got) > 0 || len(s.Damaged()) != 1 {
		t.Errorf("set aside, sessions are %v, damaged are %v", got, s.Damaged())
	}
	must(t, s.Close())
}

// The first state that a process saves of a session goes to the session's file. It is later than that of an earlier
// process in the log, also if the log's removal did not outlive a power failure.
func TestFileLaterThanTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs, dir := &faultfs.FS{}, t.TempDir()
		s, err := openOn(fs, dir)
		must(t, err)
		must(t, s.Save(stateOf("a", 1)))
		must(t, s.Save(stateOf("a", 2)))
		next := fs.Restart(false)
		must(t, s.Close())
		log := map[string][]byte{}
		for _, name := range next.Names() {
			if strings.HasPrefix(name, filepath.Join(dir, "journals")) {
				log[name] = slices.Clone(next.Content(name))
			}
		}
		s, err = openOn(next, dir)
		must(t, err)
		must(t, s.Save(stateOf("a", 3)))
		killed := next.Restart(false)
		time.Sleep(moved)
		if state, err := s.Session("a"); err != nil || string(state) != "3" {
			t.Errorf("the state is %s, %v", state, err)
		}
		must(t, s.Close())
		s, err = openOn(killed, dir)
		must(t, err)
		if got := saved(t, s); got["a"] != 3 {
			t.Errorf("after the process was killed, sessions are %v", got)
		}
		must(t, s.Close()) // the log is empty

		s, err = openOn(killed, dir)
		must(t, err)
		must(t, s.Save(stateOf("a", 4)))
		must(t, s.Close())
		for name, text := range log {
			must(t, killed.MkdirAll(filepath.Dir(name)))
			killed.Put(name, text)
		}
		s, err = openOn(killed, dir)
		must(t, err)
		if got := saved(t, s); got["a"] != 4 {
			t.Errorf("with a log that was removed, sessions are %v", got)
		}
		must(t, s.Close())
	})
}

// A session that was set aside, and is then opened again, gets a file before its states go to the log.
func TestStatesAfterDamage(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(*faultfs.FS, *store.Store, string) error{
		"set aside": func(_ *faultfs.FS, s *store.Store, _ string) error { return s.SetAside("a", "why not") },
		"unreadable": func(fs *faultfs.FS, s *store.Store, file string) error {
			fs.Put(file, []byte("{"))
			_, err := s.Session("a")
			if err == nil {
				return fmt.Errorf("a damaged state was read")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs, dir := &faultfs.FS{}, t.TempDir()
			s, err := openOn(fs, dir)
			must(t, err)
			must(t, s.Save(stateOf("a", 1)))
			must(t, damage(fs, s, filepath.Join(dir, "sessions", "a", "session")))
			must(t, s.TakeUp("a"))
			must(t, s.Save(stateOf("a", 2)))
			must(t, s.Save(stateOf("a", 3)))
			next := fs.Restart(false)
			must(t, s.Close())
			s, err = openOn(next, dir)
			must(t, err)
			if got := saved(t, s); got["a"] != 3 || len(s.Damaged()) > 0 {
				t.Errorf("sessions are %v, damaged are %v", got, s.Damaged())
			}
			must(t, s.Close())
		})
	}
}

// With the policy "interval", states that no call waits for survive a crash of the process at once and a crash of the
// machine after the interval. Other states, and all with the policy "always", survive both at once.
func TestStatesAreSyncedLater(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy     journal.Fsync
		later      bool
		soon, late int // the state after a crash of the machine, at once and after the interval
	}{
		"interval":              {journal.FsyncInterval, true, 2, 3},
		"interval, waited for":  {journal.FsyncInterval, false, 3, 3},
		"always":                {journal.FsyncAlways, true, 3, 3},
		"the default, interval": {"", true, 2, 3},
	} {
		for _, wait := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after the interval %v", name, wait), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					fs, dir := &faultfs.FS{}, t.TempDir()
					s, err := store.Open(store.Config{Dir: dir, Journals: journal.WriterConfig{FS: fs, Fsync: test.policy}})
					must(t, err)
					must(t, s.Save(stateOf("a", 1)))
					must(t, s.Save(stateOf("a", 2)))
					third := stateOf("a", 3)
					third.Later = test.later
					must(t, s.Save(third))
					want := test.soon
					if wait {
						time.Sleep(journal.DefaultFsyncInterval + time.Millisecond)
						synctest.Wait()
						want = test.late
					}
					killed, crashed := fs.Restart(false), fs.Restart(true)
					must(t, s.Close())
					for fs, want := range map[*faultfs.FS]int{killed: 3, crashed: want} {
						s, err := openOn(fs, dir)
						must(t, err)
						if got := saved(t, s); got["a"] != want {
							t.Errorf("the state is %d, want %d", got["a"], want)
						}
						must(t, s.Close())
					}
				})
			})
		}
	}
}

// After a late sync that failed, states are written anew.
func TestLateSyncFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs, dir := &faultfs.FS{}, t.TempDir()
		s, err := openOn(fs, dir)
		must(t, err)
		must(t, s.Save(stateOf("a", 1)))
		second := stateOf("a", 2)
		second.Later = true
		must(t, s.Save(second))
		fs.Fail(faultfs.Sync, fmt.Errorf("no sync"))
		time.Sleep(journal.DefaultFsyncInterval + time.Millisecond)
		synctest.Wait()
		fs.Fail(faultfs.Sync, nil)
		third := stateOf("a", 3)
		third.Later = true
		must(t, s.Save(third))
		time.Sleep(journal.DefaultFsyncInterval + time.Millisecond)
		synctest.Wait()
		next := fs.Restart(true)
		must(t, s.Close())
		s, err = openOn(next, dir)
		must(t, err)
		if got := saved(t, s); got["a"] != 3 {
			t.Errorf("the state is %d", got["a"])
		}
		must(t, s.Close())
	})
}

// While states move to the files of their sessions, which takes long, later ones are synced within the interval.
func TestStatesAreSyncedWhileOthersAreMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs, dir, s := movesSlowly(t)
		time.Sleep(journal.DefaultFsyncInterval + time.Second)
		next := fs.Restart(true)
		fs.Throttle(0)
		must(t, s.Close())
		wantLate(t, next, dir)
	})
}

// A store that is closed while its states move to their files leaves the rest to the next process, and syncs it.
func TestStoreIsClosedWhileStatesAreMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs, dir, s := movesSlowly(t)
		begin := time.Now()
		must(t, s.Close())
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("closing took %v", took)
		}
		wantLate(t, fs.Restart(true), dir)
	})
}

// movesSlowly returns a store that moves states for eight seconds, and has just saved the second state of the
// session "late", which may be synced later.
func movesSlowly(t *testing.T) (fs *faultfs.FS, dir string, s *store.Store) {
	t.Helper()
	fs, dir = &faultfs.FS{}, t.TempDir()
	s, err := openOn(fs, dir)
	must(t, err)
	must(t, s.Save(stateOf("late", 1)))
	large := []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	const count = 33 // the log is then so large that its states are moved
	for n := range 2 {
		for i := range count {
			if n == 1 && i == count-1 {
				fs.Throttle(4 << 20) // a file takes a quarter of a second
			}
			must(t, s.Save(backend.State{Key: "s" + strconv.Itoa(i), Data: large}))
		}
	}
	second := stateOf("late", 2)
	second.Later = true
	must(t, s.Save(second))
	return fs, dir, s
}

func wantLate(t *testing.T, fs *faultfs.FS, dir string) {
	t.Helper()
	s, err := openOn(fs, dir)
	must(t, err)
	if state, err := s.Session("late"); err != nil || string(state) != "2" {
		t.Errorf("the state is %s, %v", state, err)
	}
	must(t, s.Close())
}
