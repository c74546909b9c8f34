package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// outboxOf returns the number that the outbox of a session has; 0 without one.
func outboxOf(t *testing.T, s *store.Store, key string) int {
	t.Helper()
	text, err := s.Outbox(key).Load()
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	must(t, err)
	n, err := strconv.Atoi(string(text))
	must(t, err)
	return n
}

// Whenever a process dies, the next one finds the outbox that was saved last, or one that was being saved, and none of a
// session that was deleted.
func TestOutboxSurvivesACrash(t *testing.T) {
	t.Parallel()
	for _, power := range []bool{false, true} {
		steps := 0
		for more := true; more; steps++ {
			t.Run(fmt.Sprintf("power failure %v, after %d changes", power, steps), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { more = outboxAfterCrash(t, power, steps) })
			})
		}
		if steps < 30 {
			t.Errorf("the process made %d changes", steps)
		}
	}
}

// outboxAfterCrash saves outboxes in a process that dies after some changes of files, and in a next one. It reports whether the
// first one died.
func outboxAfterCrash(t *testing.T, power bool, steps int) (died bool) {
	disk, dir := &faultfs.FS{}, t.TempDir()
	open := func(disk *faultfs.FS) *store.Store {
		t.Helper()
		cfg := journal.WriterConfig{FS: disk}
		if power {
			cfg.Fsync = journal.FsyncAlways
		}
		s, err := store.Open(store.Config{Dir: dir, Journals: cfg})
		must(t, err)
		return s
	}
	tried, least := map[string]int{}, map[string]int{}
	save := func(s *store.Store, key string, n int) {
		tried[key] = n
		if s.Outbox(key).Save([]byte(strconv.Itoa(n))) == nil {
			least[key] = n
		}
	}
	check := func(s *store.Store) {
		t.Helper()
		for key := range tried {
			if n := outboxOf(t, s, key); n < least[key] || n > tried[key] {
				t.Errorf("%s has outbox %d, not one from %d to %d", key, n, least[key], tried[key])
			}
		}
	}
	s := open(disk)
	must(t, s.Save(stateOf("a", 1), stateOf("b", 1)))
	disk.CrashAfter(steps)
	save(s, "a", 1)
	save(s, "b", 1)
	save(s, "a", 2)
	time.Sleep(moved)
	save(s, "b", 2)
	save(s, "a", 3)
	removed := s.Remove("b")
	created := removed == nil && s.Save(stateOf("b", 2)) == nil
	if created {
		delete(tried, "b")
		tried["new b"] = 0
	} else {
		least["b"] = 0
	}
	save(s, "a", 4)
	died = least["a"] < 4
	next := disk.Restart(power)
	_ = s.Close()
	s = open(next)
	check(s)
	if created && outboxOf(t, s, "b") != 0 {
		t.Errorf("the session that was created has the outbox of the one that was deleted")
	}
	save(s, "a", 5)
	after := next.Restart(power)
	must(t, s.Close())
	s = open(after)
	check(s)
	if created && outboxOf(t, s, "b") != 0 {
		t.Errorf("two processes later the session has the outbox of the one that was deleted")
	}
	must(t, s.Close())
	return died
}

// A folder that is set aside has the outbox, and so has the session that takes it up.
func TestOutboxIsSetAside(t *testing.T) {
	t.Parallel()
	disk, dir := &faultfs.FS{}, t.TempDir()
	s, err := openOn(disk, dir)
	must(t, err)
	must(t, s.Save(stateOf("a", 1)))
	must(t, s.Outbox("a").Save([]byte("7")))
	must(t, s.SetAside("a", "a test"))
	if text := disk.Content(filepath.Join(dir, "damaged", "a", "outbox", "log")); string(text) != "7" {
		t.Errorf("the folder has the outbox %q", text)
	}
	must(t, s.TakeUp("a"))
	if n := outboxOf(t, s, "a"); n != 7 {
		t.Errorf("the session has outbox %d", n)
	}
	must(t, s.Close())
}

// The folder of a session whose state is missing has the outbox that was in the log.
func TestOutboxOfASessionWithoutState(t *testing.T) {
	t.Parallel()
	disk, dir := &faultfs.FS{}, t.TempDir()
	s, err := openOn(disk, dir)
	must(t, err)
	must(t, s.Save(stateOf("a", 1)))
	talk(t, s, "a", "user.message")
	must(t, s.Outbox("a").Save([]byte("7")))
	next := disk.Restart(false)
	must(t, s.Close())
	must(t, next.RemoveAll(filepath.Join(dir, "sessions", "a", "session")))
	s, err = openOn(next, dir)
	must(t, err)
	if got := saved(t, s); len(got) != 0 || len(s.Damaged()) != 1 {
		t.Errorf("sessions are %v, damaged are %v", got, s.Damaged())
	}
	if text := next.Content(filepath.Join(dir, "damaged", "a", "outbox", "log")); string(text) != "7" {
		t.Errorf("the folder has the outbox %q", text)
	}
	must(t, s.Close())
}

// An outbox leaves the log for its file, and the log is then empty.
func TestOutboxIsMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk, dir := &faultfs.FS{}, t.TempDir()
		s, err := openOn(disk, dir)
		must(t, err)
		must(t, s.Save(stateOf("a", 1)))
		must(t, s.Outbox("a").Save([]byte("1")))
		must(t, s.Outbox("a").Save([]byte("2")))
		file := filepath.Join(dir, "sessions", "a", "outbox", "log")
		if text := disk.Content(file); text != nil {
			t.Errorf("at first the file has %q", text)
		}
		time.Sleep(moved)
		synctest.Wait()
		if text := disk.Content(file); string(text) != "2" || outboxOf(t, s, "a") != 2 {
			t.Errorf("two minutes later the file has %q", text)
		}
		for _, name := range disk.Names() {
			if strings.HasPrefix(name, filepath.Join(dir, "journals")) {
				t.Errorf("%s is left", name)
			}
		}
		must(t, s.Close())
	})
}

// Nothing of a deleted session is readable after a minute, however busy others are.
func TestDeletedSessionIsUnreadable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs, dir := &faultfs.FS{}, t.TempDir()
		s, err := openOn(fs, dir)
		must(t, err)
		must(t, s.Save(stateOf("a", 1), stateOf("b", 1)))
		must(t, s.Outbox("a").Save([]byte("a secret prompt")))
		time.Sleep(time.Minute + time.Second) // just behind the time at which entries leave
		must(t, s.Outbox("a").Save([]byte("another secret prompt")))
		must(t, s.Remove("a"))
		for i := range 13 {
			must(t, s.Save(stateOf("b", i)))
			time.Sleep(5 * time.Second)
		}
		for _, name := range fs.Names() {
			if bytes.Contains(fs.Content(name), []byte("secret")) {
				t.Errorf("%s has the prompt", name)
			}
		}
		must(t, s.Close())
	})
}
