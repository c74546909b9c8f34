package journal

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// A journal whose sync fails while its events are to leave the joint log stores them again: the system reports only once
// what it could not write.
func TestSyncFailsWhileEventsLeaveTheJointLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs := &faultfs.FS{}
		c := assemble(t, fs, 20, WriterConfig{})
		joinAll(c, 3)
		time.Sleep(2 * DefaultFsyncInterval)
		fs.FailIn("s/j4/", faultfs.Sync, syscall.EIO)
		time.Sleep(2*time.Minute + minRetry - DefaultFsyncInterval/2) // the next sync comes before the next moving
		fs.FailIn("", faultfs.Sync, nil)
		time.Sleep(3 * time.Minute)
		if bytes := c.logs.joint.Bytes(); bytes != 0 {
			t.Errorf("%d bytes are still in the joint log", bytes)
		}
		next := assemble(t, c.kill(true), 20, WriterConfig{boot: "next"})
		for i := range next.j {
			if got, _ := next.durables(i); len(got) != 4 {
				t.Errorf("journal %d has %d events", i, len(got))
			}
		}
		next.close()
	})
}

// A process that was killed has not synced what it moved. The next one does, before it drops the joint log.
func TestMovedByAKilledProcess(t *testing.T) {
	t.Parallel()
	cfg := WriterConfig{Fsync: FsyncAlways}
	c := assemble(t, disk(t), 20, cfg)
	joinAll(c, 3)
	for _, key := range c.logs.joint.Keys() {
		if err := c.logs.joint.Member(key).Move(); err != nil {
			t.Fatal(err)
		}
	}
	killed := c.kill(false)
	assemble(t, killed, 0, cfg).close()
	if names := strings.Join(killed.Names(), " "); strings.Contains(names, "joint") {
		t.Errorf("the joint log is still there: %s", names)
	}
	cfg.boot = "next"
	last := assemble(t, killed.Restart(true), 20, cfg)
	for i := range last.j {
		if got, _ := last.durables(i); len(got) != 4 {
			t.Errorf("journal %d has %d events", i, len(got))
		}
	}
	last.close()
}

// Two owners of a session are written at the same time: the earlier one is refused, and holds nothing up.
func TestTwoOwnersInOneWrite(t *testing.T) {
	t.Parallel()
	fs := disk(t)
	c := assemble(t, fs, 20, WriterConfig{})
	joinAll(c, 3)
	d, _, err := OpenLog(c.logs, "j3", 2, epoch, "s/j3", c.w)
	if err != nil {
		t.Fatal(err)
	}
	old := c.j[3]
	c.j[3] = New(Config{Epoch: epoch, Log: d})
	c.j[3].Append(durable(7))
	c.awaitShown()
	release := fs.StallIn("joint/")
	defer release()
	c.j[9].Append(durable(8)) // the others wait until it is written
	eventually(t, func() bool { return c.w.local.writing.still(time.Now()) > 0 })
	c.j[3].Append(durable(9))
	old.Append(durable(10))
	release()
	c.awaitShown()
	if got, _ := c.durables(3); len(got) != 6 {
		t.Errorf("the journal has %d events", len(got))
	}
	eventually(t, func() bool { return old.Degraded() != nil }) // it could not write
	c.close()
}

// A session that nobody opened is deleted while its events move to its folder.
func TestForgottenWhileItIsMoved(t *testing.T) {
	t.Parallel()
	c := assemble(t, disk(t), 20, WriterConfig{})
	joinAll(c, 3)
	fs := c.kill(false)
	next := assemble(t, fs, 0, WriterConfig{})
	release := fs.StallIn("s/j4/")
	defer release()
	moved := make(chan error, 1)
	go func() { moved <- next.logs.Move("s/j4") }()
	eventually(t, func() bool { return next.logs.joint.Member("j4") != nil })
	next.logs.Forget("j4")
	release()
	if err := <-moved; err != nil {
		t.Error(err)
	}
	next.close()
}

// Events of a session that nobody opened stay in the joint log if its folder takes nothing. Whoever opens the session
// then has them, and nothing else writes to its folder any more.
func TestOpenedAfterItWasNotMoved(t *testing.T) {
	t.Parallel()
	c := assemble(t, disk(t), 20, WriterConfig{})
	joinAll(c, 3)
	fs := c.kill(false)
	next := assemble(t, fs, 0, WriterConfig{})
	fs.FailIn("s/j4/", faultfs.Write, syscall.EACCES)
	if err := next.logs.Move("s/j4"); err == nil {
		t.Error("the journal was moved")
	}
	fs.FailIn("", faultfs.Write, nil)
	earlier := next.logs.joint.Member("j4")
	d, rec, err := OpenLog(next.logs, "j4", 2, epoch, "s/j4", next.w)
	if err != nil || rec.Events != 4 {
		t.Fatalf("%v; found %+v", err, rec)
	}
	if err := earlier.Move(); !errors.Is(err, backend.ErrStale) {
		t.Errorf("the earlier owner may write: %v", err)
	}
	next.j = append(next.j, New(Config{Epoch: epoch, Log: d}))
	next.close()
}

// Damage at the end of the joint log is reported too. What a killed process was writing is not damage: it was not shown.
func TestEndOfJointLog(t *testing.T) {
	t.Parallel()
	for _, damaged := range []bool{false, true} {
		c := assemble(t, disk(t), 20, WriterConfig{})
		joinAll(c, 1)
		last := durable(50)
		c.j[0].Append(last)
		c.awaitShown()
		killed := c.kill(false)
		name, at := frameOf(killed, last.ID)
		if !strings.HasPrefix(name, "joint/") {
			t.Fatalf("the event is in %q", name)
		}
		content := killed.Content(name)
		if damaged {
			content[at] ^= 1
		} else {
			killed.Put(name, content[:len(content)-1])
		}
		next := assemble(t, killed, 20, WriterConfig{})
		if got, told := next.durables(0); len(got) != 2 || told != damaged {
			t.Errorf("damaged %v: the journal has %d events, and reports a gap: %v", damaged, len(got), told)
		}
		next.close()
	}
}

// A crash of the machine can leave a hole in a journal's own file: bytes before others that were written, of events
// that were not synced there. The joint log has these events.
func TestHoleInAJournal(t *testing.T) {
	t.Parallel()
	for _, policy := range []Fsync{FsyncAlways, FsyncInterval} {
		synctest.Test(t, func(t *testing.T) {
			c := assemble(t, &faultfs.FS{}, 20, WriterConfig{Fsync: policy})
			joinAll(c, 3)
			time.Sleep(2 * DefaultFsyncInterval)
			c.move(4, durable(20))
			all := func() bool { return true }
			fs := c.fs.(*faultfs.FS).Tear(1<<20, all) // the disk has everything
			c.w.Close()
			zero(t, fs, "s/j4/", durable(2).ID)
			fs = fs.Tear(1<<20, all)
			cfg := WriterConfig{Fsync: policy, boot: "next"}
			for range 2 { // also if the next process is killed before it has synced
				next := assemble(t, fs, 20, cfg)
				got, told := next.durables(4)
				if len(got) != 5 || policy == FsyncAlways && told || next.rec[4].Skipped > 0 {
					t.Errorf("%s: the journal has %d events, and reports a gap: %v; found %+v", policy, len(got), told,
						next.rec[4])
				}
				fs = next.kill(true)
			}
			next := assemble(t, fs, 20, cfg)
			next.close()
			if err := fs.RemoveAll("joint"); err != nil {
				t.Fatal(err)
			}
			last := assemble(t, fs, 20, cfg)
			if got, _ := last.durables(4); len(got) != 5 {
				t.Errorf("%s: without the joint log the journal has %d events", policy, len(got))
			}
			last.close()
		})
	}
}

// zero overwrites the beginning of an event in a file whose name begins with a text.
func zero(t *testing.T, fs *faultfs.FS, prefix string, id ID) {
	t.Helper()
	for _, name := range fs.Names() {
		if at := bytes.Index(fs.Content(name), id[:]); at >= 0 && strings.HasPrefix(name, prefix) {
			clear(fs.Content(name)[at:][:len(id)])
			return
		}
	}
	t.Fatalf("event %v is in no file of %q", id, prefix)
}

// The journals of sessions that nobody opened may be long and their disk slow: others are written meanwhile.
func TestUnopenedLogsDelayNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := assemble(t, &faultfs.FS{}, 20, WriterConfig{})
		joinAll(c, 3)
		fs := c.kill(false)
		next := assemble(t, fs, 1, WriterConfig{})
		release := fs.StallIn("s/j4/")
		defer release()
		time.Sleep(3 * time.Minute) // the others are to leave the joint log
		if next.logs.joint.Member("j4") == nil {
			t.Fatal("the journal is not being moved")
		}
		next.j[0].Append(durable(50))
		time.Sleep(time.Second)
		next.j[0].mu.RLock()
		if d := next.j[0].disk; len(d.unwritten)+len(d.flight) > 0 {
			t.Error("a journal waits for another that nobody opened")
		}
		next.j[0].mu.RUnlock()
		time.Sleep(2 * stallTimeout)
		if err := next.j[0].Degraded(); err != nil {
			t.Error(err)
		}
		release()
		time.Sleep(3 * time.Minute)
		if bytes := next.logs.joint.Bytes(); bytes != 0 {
			t.Errorf("%d bytes are still in the joint log", bytes)
		}
		next.close()
	})
}

// The end of a process does not wait until a slow disk has the events of all sessions that nobody opened.
func TestUnopenedLogsDelayNoEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := assemble(t, &faultfs.FS{}, 20, WriterConfig{})
		joinAll(c, 3)
		fs := c.kill(false)
		next := assemble(t, fs, 0, WriterConfig{})
		fs.Throttle(200)
		begin := time.Now()
		next.close()
		if took := time.Since(begin); took > 3*moveAtEnd {
			t.Errorf("it took %v", took)
		}
		fs.Throttle(0)
		last := assemble(t, fs, 20, WriterConfig{})
		for i := range last.j {
			if got, _ := last.durables(i); len(got) != 4 || last.rec[i].Lost {
				t.Errorf("journal %d has %d events: %+v", i, len(got), last.rec[i])
			}
		}
		last.close()
	})
}

// A process that finds the joint log damaged may not open all sessions. Whoever opens one later learns of the damage too:
// also of a session of which nothing was left in the joint log, and once.
func TestDamageIsReportedLater(t *testing.T) {
	t.Parallel()
	c := assemble(t, disk(t), 20, WriterConfig{})
	joinAll(c, 1)
	end, middle := durable(50), durable(51)
	c.j[0].Append(end)
	c.awaitShown()
	c.j[1].Append(middle)
	c.awaitShown()
	c.j[1].Append(durable(52))
	c.awaitShown()
	fs := c.kill(false)
	for _, id := range []ID{end.ID, middle.ID} {
		zero(t, fs, "joint/", id)
	}
	for _, name := range fs.Names() {
		if content, key := fs.Content(name), []byte("\x02j2"); strings.HasPrefix(name, "joint/") {
			for at := bytes.Index(content, key); at >= 0; at = bytes.Index(content, key) {
				clear(content[at : at+len(key)]) // all of the third session
			}
		}
	}
	assemble(t, fs, 0, WriterConfig{}).close()
	if names := strings.Join(fs.Names(), " "); strings.Contains(names, "joint/") {
		t.Fatalf("the joint log is still there: %s", names)
	}
	for life := range 2 {
		next := assemble(t, fs, 20, WriterConfig{})
		for i, most := range []int{2, 3, 1} {
			got, told := next.durables(i)
			if len(got) > most || i < 2 && len(got) < most || !told {
				t.Errorf("life %d: journal %d has %d events, and reports a gap: %v", life, i, len(got), told)
			}
			if next.rec[i].Lost != (life == 0 && i == 2) {
				t.Errorf("life %d: journal %d: %+v", life, i, next.rec[i])
			}
			eventually(t, func() bool { // it has written that
				next.j[i].mu.RLock()
				defer next.j[i].mu.RUnlock()
				return next.j[i].disk.reserved > next.j[i].disk.start
			})
		}
		fs = next.kill(false)
	}
}
