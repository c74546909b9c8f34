package journal

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// gatedLogs opens logs whose appends fail, or wait at gates while those are closed. It counts the appends.
type gatedLogs struct {
	backend.Logs

	remote bool

	mu      sync.Mutex
	gates   map[string]chan struct{} // by session
	now     map[string]int           // appends under way, by session
	overlap bool                     // one log had two at a time
	err     error                    // of the appends
}

func (g *gatedLogs) Open(session string, term, epoch uint64, visit func(uint64, []byte) error) (
	backend.Log, backend.Recovered, error,
) {
	log, found, err := g.Logs.Open(session, term, epoch, visit)
	return &gatedLog{log, g, session}, found, err
}

// shut closes the gate of a session.
func (g *gatedLogs) shut(session string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gates[session] = make(chan struct{})
}

// fail sets the error of the appends; nil lets them succeed.
func (g *gatedLogs) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

// open opens all gates.
func (g *gatedLogs) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for session, gate := range g.gates {
		close(gate)
		delete(g.gates, session)
	}
}

// waiting returns how many appends are under way.
func (g *gatedLogs) waiting() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, calls := range g.now {
		n += calls
	}
	return n
}

type gatedLog struct {
	backend.Log

	logs    *gatedLogs
	session string
}

func (l *gatedLog) Remote() bool { return l.logs.remote }

func (l *gatedLog) Append(last uint64, entries []backend.Entry) error {
	g := l.logs
	g.mu.Lock()
	g.now[l.session]++
	g.overlap = g.overlap || g.now[l.session] > 1
	gate, err := g.gates[l.session], g.err
	g.mu.Unlock()
	if gate != nil {
		<-gate
	}
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.now[l.session]--
	}()
	if err != nil {
		return err
	}
	return l.Log.Append(last, entries)
}

// openGated returns a writer with journals of new logs, whose first marks are written.
func openGated(t *testing.T, remote bool, count int) (*Writer, *gatedLogs, []*Journal) {
	t.Helper()
	w := NewWriter(WriterConfig{FS: &faultfs.FS{}})
	logs, err := OpenFolders(w, "joint", func(session string) string { return "s/" + session })
	if err != nil {
		t.Fatal(err)
	}
	g := &gatedLogs{
		Logs: logs, remote: remote, gates: map[string]chan struct{}{}, now: map[string]int{},
	}
	journals := make([]*Journal, count)
	for i := range journals {
		session := fmt.Sprint(i)
		d, _, err := OpenLog(g, session, 1, epoch, session, w)
		if err != nil {
			t.Fatal(err)
		}
		journals[i] = New(Config{Epoch: epoch, Log: d})
	}
	synctest.Wait()
	return w, g, journals
}

// closeGated closes the journals and the writer, and checks that all events are in the logs.
func closeGated(t *testing.T, w *Writer, g *gatedLogs, journals []*Journal, events uint64) {
	t.Helper()
	for i, j := range journals {
		if err := j.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if last := j.disk.log.Last(); last != events {
			t.Errorf("log %d ends with entry %d, want %d", i, last, events)
		}
	}
	w.Close()
	if g.overlap {
		t.Error("a log was changed by two goroutines at a time")
	}
}

// Remote logs are written several at a time, up to the limit; local ones one after another. Either way one log is
// changed by one goroutine at a time.
func TestLogsWrittenAtATime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		remote      bool
		count, want int
	}{{false, 8, 1}, {true, 8, 8}, {true, 3 * remoteLanes, remoteLanes}} {
		t.Run(fmt.Sprintf("%d, remote %t", c.count, c.remote), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, g, journals := openGated(t, c.remote, c.count)
				for i, j := range journals {
					g.shut(fmt.Sprint(i))
					j.Append(durable(0))
				}
				synctest.Wait()
				if n := g.waiting(); n != c.want {
					t.Errorf("%d logs are written at a time, want %d", n, c.want)
				}
				for _, j := range journals {
					j.Append(durable(1))
				}
				g.open()
				closeGated(t, w, g, journals, 2)
			})
		})
	}
}

// A remote log that does not answer delays the journals of its lane only.
func TestOneRemoteLogHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, g, journals := openGated(t, true, remoteLanes+1)
		g.shut("0")
		for _, j := range journals {
			j.Append(durable(0))
		}
		time.Sleep(2 * stallTimeout)
		synctest.Wait()
		for i, j := range journals {
			sameLane := i%remoteLanes == 0
			if err := j.Degraded(); errors.Is(err, ErrStalled) != sameLane {
				t.Errorf("journal %d is %v; it shares the lane: %t", i, err, sameLane)
			}
			if written := j.disk.log.Last() == 1; written == sameLane {
				t.Errorf("journal %d is written: %t", i, written)
			}
		}
		if late := w.Degraded(); len(late) != 2 {
			t.Errorf("late are %v", late)
		}
		g.open()
		closeGated(t, w, g, journals, 1)
	})
}

var errAway = errors.New("the server is away")

// shownSeq is the number of the last event that readers can see.
func shownSeq(j *Journal) uint64 {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.shownSeq
}

// A remote log that failed is written again by its lane when its time comes, before its events are shown, and a removed
// one is deleted.
func TestRemoteLogRecoversAndIsRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, g, journals := openGated(t, true, 1)
		j := journals[0]
		g.fail(errAway)
		j.Append(durable(0))
		synctest.Wait()
		if err := j.Degraded(); !errors.Is(err, errAway) {
			t.Fatalf("the journal is %v", err)
		}
		if shown := shownSeq(j); shown != 0 {
			t.Errorf("event %d was shown before it was written", shown)
		}
		if err := j.AwaitStored(t.Context()); err != nil {
			t.Errorf("a reader of what is stored waits: %v", err)
		}
		began := time.Now()
		err := j.AwaitStorage(t.Context(), time.Second)
		if !errors.Is(err, errAway) || time.Since(began) != time.Second {
			t.Errorf("after %v the storage is %v", time.Since(began), err)
		}
		go func() {
			time.Sleep(maxRetry)
			g.fail(nil)
		}()
		if err := j.AwaitStorage(t.Context(), time.Hour); err != nil || shownSeq(j) != 1 {
			t.Errorf("the storage that is back is %v, event %d is shown", err, shownSeq(j))
		}
		g.shut("0")
		time.Sleep(4 * minRetry) // it is being written again
		j.Append(durable(1))
		synctest.Wait()
		if n := g.waiting(); n != 1 {
			t.Errorf("%d appends are under way, want 1", n)
		}
		g.open()
		synctest.Wait()
		if err := j.Degraded(); err != nil || j.disk.log.Last() != 2 || shownSeq(j) != 2 {
			t.Errorf("the log ends with entry %d, the shown events with %d, %v", j.disk.log.Last(), shownSeq(j), err)
		}
		if err := j.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		for _, name := range w.cfg.FS.(*faultfs.FS).Names() {
			if strings.HasPrefix(name, "s/0/") {
				t.Errorf("%q is left of the removed log", name)
			}
		}
		w.Close()
	})
}
