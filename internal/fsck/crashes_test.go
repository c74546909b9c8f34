package fsck_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	"github.com/copilot-grpc/copilot-grpc/internal/fsck"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
)

var (
	crashRuns  = flag.Int("crashes", 300, "how many runs TestCrashes makes")
	firstCrash = flag.Uint64("first-crash", 1, "the seed of its first run")
)

// What a process was told to be stored is there after its crash at any change of a file, or after that of the machine: events
// in their places, the latest states and outboxes, and nothing of deleted sessions. The verifier finds no damage, and the same
// sessions and events. Each run has a few processes one after another. With -crashes it makes more runs.
func TestCrashes(t *testing.T) {
	t.Parallel()
	for i := range *crashRuns / race.Sample(10) {
		seed := *firstCrash + uint64(i)
		synctest.Test(t, func(t *testing.T) {
			if newCrashes(t, seed).run(); t.Failed() {
				t.Logf("this was seed %d; to repeat it: -run TestCrashes -first-crash %d -crashes 1", seed, seed)
			}
		})
	}
}

// crashes is a run.
type crashes struct {
	t     *testing.T
	rnd   *rand.Rand
	dir   string
	disk  *faultfs.FS
	power bool // the machine crashes
	count int  // of events, and of all that is saved

	sessions map[string]*stored
}

// stored is what a session is to have.
type stored struct {
	// mayBeGone: its deletion had begun.
	mayBeGone bool
	state     span
	outbox    span
	events    map[uint64]journal.ID // those that were shown, by number
	epoch     uint64

	log *journal.Journal // nil unless it is open
}

// span are the numbers of what may be there: from the last that was stored to the last that was tried.
type span struct{ least, most int }

func (s *span) save(n int, store func(text []byte) error) {
	s.most = n
	if store(strconv.AppendInt(nil, int64(n), 10)) == nil {
		s.least = n
	}
}

func newCrashes(t *testing.T, seed uint64) *crashes {
	rnd := rand.New(rand.NewPCG(seed, 0))
	c := &crashes{t: t, rnd: rnd, dir: t.TempDir(), disk: &faultfs.FS{}, power: seed%2 == 0, sessions: map[string]*stored{}}
	must(t, c.disk.MkdirAll(filepath.Join(c.dir, "sessions")))
	return c
}

func (c *crashes) run() {
	for range 3 {
		c.process()
		if c.t.Failed() {
			return
		}
	}
}

// process opens the store, checks what it has, works, and ends: mostly by a crash.
func (c *crashes) process() {
	found := c.verify()
	s := c.open()
	c.check(s, found)
	if c.rnd.IntN(8) > 0 {
		c.disk.CrashAfter(c.rnd.IntN(120))
	}
	for range 5 + c.rnd.IntN(20) {
		if c.step(s); c.dead() {
			break
		}
	}
	next := c.disk.Restart(c.power)
	orderly := !c.dead() && c.rnd.IntN(2) == 0
	c.close(s)
	if orderly { // it may still have crashed
		next = c.disk.Restart(c.power)
	}
	c.disk = next
}

func (c *crashes) open() *store.Store {
	cfg := journal.WriterConfig{FS: c.disk, SegmentBytes: 8 << 10}
	if c.power {
		cfg.Fsync = journal.FsyncAlways
	}
	s, err := store.Open(store.Config{Dir: c.dir, Journals: cfg})
	must(c.t, err)
	return s
}

func (c *crashes) close(s *store.Store) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, k := range slices.Sorted(maps.Keys(c.sessions)) {
		if one := c.sessions[k]; one.log != nil {
			_ = one.log.Close(ctx) // the disk may be gone
			one.log = nil
		}
	}
	_ = s.Close()
}

// dead reports whether the process has crashed.
func (c *crashes) dead() bool {
	_, err := c.disk.Open(filepath.Join(c.dir, "lock"), false)
	return errors.Is(err, faultfs.ErrCrashed)
}

// step does something.
func (c *crashes) step(s *store.Store) {
	keys := slices.Sorted(maps.Keys(c.sessions))
	keys = slices.DeleteFunc(keys, func(key string) bool { return c.sessions[key].log == nil })
	c.count++
	what := c.rnd.IntN(10)
	if len(keys) == 0 || what == 0 && len(keys) < 12 {
		c.create(s, key(c.rnd.IntN(12)))
		return
	}
	k := keys[c.rnd.IntN(len(keys))]
	one := c.sessions[k]
	switch what {
	case 1:
		time.Sleep(time.Duration(c.rnd.IntN(90)) * time.Second)
	case 2:
		c.remove(s, k)
	case 3, 4:
		one.state.save(c.count, func(text []byte) error { return s.Save(backend.State{Key: k, Data: text}) })
	case 5, 6:
		one.outbox.save(c.count, s.Outbox(k).Save)
	default:
		if what == 9 { // more than eight journals share the log
			c.append(keys...)
		} else {
			c.append(k)
		}
	}
}

// create creates a session, unless there is one.
func (c *crashes) create(s *store.Store, k string) {
	if c.sessions[k] != nil {
		return
	}
	one := &stored{events: map[uint64]journal.ID{}, mayBeGone: true}
	c.sessions[k] = one
	c.openLog(s, k)
	one.state.save(c.count, func(text []byte) error { return s.Save(backend.State{Key: k, Data: text}) })
	one.mayBeGone = one.state.least == 0
}

// openLog opens the journal of a session.
func (c *crashes) openLog(s *store.Store, k string) {
	epoch, _ := s.NextEpoch() // on a disk that fails it is later, too
	d, found, err := s.Journal(k, epoch)
	if err != nil {
		if !c.dead() {
			c.t.Errorf("the journal of %s cannot be opened: %v", k, err)
		}
		return
	}
	// A journal that ends within a frame is in doubt, and so is one whose machine seems to be the same after its crash.
	doubt := !c.power && found.Cut == 0 && (found.Lost || found.Doubtful)
	if doubt || found.Skipped > 0 || len(found.SetAside) > 0 {
		c.t.Errorf("the journal of %s has %+v", k, found)
	}
	c.sessions[k].log = journal.New(journal.Config{Epoch: epoch, Log: d})
}

// append appends events to sessions, and waits until readers see them.
func (c *crashes) append(keys ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for range 1 + c.rnd.IntN(3) {
		added := map[string]*journal.Record{}
		for _, k := range keys {
			c.count++
			id := journal.ParseID([]byte(fmt.Sprint("event ", c.count)))
			text := strings.Repeat("x", c.rnd.IntN(3)*c.rnd.IntN(300))
			rec := &journal.Record{Type: "assistant.message", ID: id, JSON: fmt.Appendf(nil, `{"text":%q}`, text)}
			added[k] = rec
			c.sessions[k].log.Append(rec)
		}
		for _, k := range keys {
			rec, one := added[k], c.sessions[k]
			if one.log.AwaitShown(ctx) == nil && one.log.Degraded() == nil {
				one.events[rec.Pos.Seq], one.epoch = rec.ID, rec.Pos.Epoch
			}
		}
	}
}

// remove deletes a session.
func (c *crashes) remove(s *store.Store, k string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	one := c.sessions[k]
	removed := errors.Join(one.log.Remove(ctx), s.Remove(k))
	if one.log, one.mayBeGone = nil, true; removed == nil {
		delete(c.sessions, k)
	}
}

// check compares the store with what it is to have and with what the verifier has found, and opens the journals.
func (c *crashes) check(s *store.Store, found map[string]fsck.Session) {
	t := c.t
	states, err := s.Sessions()
	must(t, err)
	if damaged := s.Damaged(); len(damaged) > 0 {
		t.Errorf("damaged are %v", damaged)
	}
	for k := range states {
		if c.sessions[k] == nil {
			t.Errorf("%s is there, and was deleted", k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(c.sessions)) {
		one := c.sessions[k]
		state, ok := states[k]
		if !ok {
			if !one.mayBeGone {
				t.Errorf("%s is lost", k)
			}
			delete(c.sessions, k)
			continue
		}
		one.mayBeGone = false
		c.within(k, "state", &one.state, string(state))
		text, err := s.Outbox(k).Load()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the outbox of %s: %v", k, err)
		}
		c.within(k, "outbox", &one.outbox, string(text))
		c.openLog(s, k)
		got := map[uint64]journal.ID{}
		for rec := range event.Since(t.Context(), one.log, journal.Position{}) {
			got[rec.Pos.Seq] = rec.ID
		}
		if v := found[k]; v.Events != len(got) {
			t.Errorf("the verifier finds %d events of %s, and the store %d", v.Events, k, len(got))
		}
		for seq, id := range one.events {
			if got[seq] != id {
				t.Errorf("event %d of %s was shown, and is lost: %d of %d are there", seq, k, len(got), len(one.events))
			}
		}
		one.events = got
	}
}

// within checks that what was saved of a session is there, and takes it for what is stored.
func (c *crashes) within(k, what string, s *span, text string) {
	n, _ := strconv.Atoi(text) // nothing is 0
	if n < s.least || n > s.most {
		c.t.Errorf("%s has the %s %d, not one from %d to %d", k, what, n, s.least, s.most)
	}
	*s = span{n, n}
}

// verify has the verifier look at the directory, and returns the sessions that it finds.
func (c *crashes) verify() map[string]fsck.Session {
	found := map[string]fsck.Session{}
	if len(c.disk.Names()) == 0 {
		return found // the first process has not begun
	}
	dir := c.t.TempDir()
	for _, name := range c.disk.Names() {
		path := filepath.Join(dir, strings.TrimPrefix(name, c.dir))
		must(c.t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(c.t, os.WriteFile(path, c.disk.Content(name), 0o600))
	}
	must(c.t, os.MkdirAll(filepath.Join(dir, "sessions"), 0o700))
	r := verify(c.t, dir)
	for _, d := range r.Damage.List {
		if d.Path != "epoch" { // a process that crashed at its first change
			c.t.Errorf("the verifier finds damage: %+v", d)
		}
	}
	for _, s := range r.Sessions {
		found[s.Key] = s
	}
	return found
}
