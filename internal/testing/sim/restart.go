package sim

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// life is a process of the bridge: its session, its storage and all that runs in it.
type life struct {
	s      *session.Session
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	// storage and files are nil for the zero variant.
	storage *faultfs.FS
	files   *files
	writer  *journal.Writer
}

// newLife begins a process of the bridge with what an earlier one has stored; before is nil for the first one. The zero
// variant has no storage.
func (w *world) newLife(before *life) *life {
	l := &life{}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	cfg := session.Config{
		ID: "s1", Host: host{w, l}, Epoch: uint64(1 + 1000*w.restarts),
		Encode: func(*journal.Record, journal.Form) []byte { return nil },
	}
	w.room = &room{}
	cfg.Room = w.room
	if w.variant.narrow() {
		w.room.places = 2
	}
	if w.variant > 0 {
		l.storage, l.files = &faultfs.FS{}, &files{content: map[string][]byte{}}
		if before != nil {
			l.storage, l.files = before.storage.Restart(false), before.files.clone()
		}
		l.writer = journal.NewWriter(journal.WriterConfig{FS: l.storage})
		var err error
		if cfg.Log, _, err = journal.OpenDisk("s1", cfg.Epoch, l.writer); err == nil {
			cfg.Outbox, err = outbox.Open(l.files)
		}
		if err != nil {
			w.fail("the storage cannot be opened: %v", err)
		}
	}
	l.s = session.New(cfg)
	return l
}

// close ends what runs in a process.
func (l *life) close() {
	l.cancel()
	synctest.Wait()
	l.tasks.Wait()
	if l.writer != nil {
		_ = l.s.Journal().Close(context.Background())
		l.writer.Close()
	}
}

// await has a caller wait for the outcome of its prompt.
func (l *life) await(waiter *session.Waiter, over func(turn.Outcome, error)) {
	if l.ctx.Err() != nil {
		return
	}
	l.tasks.Go(func() {
		done, outcome := waiter.Done()
		select {
		case <-done:
			over(outcome(), nil)
		case <-l.ctx.Done():
		}
	})
}

// MarkDirty implements session.Host.
func (h host) MarkDirty() {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.dirty = h.w.dirty || h.life == h.w.life
}

// save saves the session if it has changed.
func (w *world) save() {
	w.mu.Lock()
	dirty := w.dirty
	w.dirty = false
	w.mu.Unlock()
	if !dirty {
		return
	}
	if text := w.s.Save(nil, nil); text != nil {
		w.saved = text
	}
}

// restart ends the bridge, whose CLI process either has its end, too, or notices it and shuts down. The next process has
// what was stored, and callers come back.
func (w *world) restart(n int) {
	w.mu.Lock()
	if w.saved == nil || w.storage == nil {
		w.mu.Unlock()
		return
	}
	before, process, rt := w.life, w.cli, w.rt
	w.life, w.cli, w.rt = nil, nil, nil
	w.crashes++
	w.restarts++
	w.mu.Unlock()
	after := w.newLife(before) // before anything notices the end
	if process != nil {
		if w.mu.Lock(); n%2 == 1 && process.loaded {
			process.emit("session.shutdown", `{"shutdownType":"routine"}`, -1)
			process.write()
		}
		w.mu.Unlock()
		_ = process.pipe.Close()
		<-rt.conn.Done()
		before.s.Loader().RuntimeLost(rt, errConnection)
		close(rt.told)
	}
	w.reader.close()
	before.close()
	if process != nil {
		rt.conn.Wait()
	}
	w.loseCallers()
	w.mu.Lock()
	w.life = after
	w.mu.Unlock()
	if err := w.s.Restore(w.saved, nil, nil); err != nil {
		w.fail("the session cannot be restored: %v", err)
	}
	if w.s.Awaited() {
		w.revive()
	}
	w.comeBack()
	synctest.Wait()
}

// loseCallers ends what callers wait for at a process that has ended.
func (w *world) loseCallers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.prompts {
		p.crashed = p.crashed || !p.over
	}
	for _, a := range w.order {
		a.open = false
		for _, one := range a.answers {
			if !one.over {
				one.over, one.err = true, errConnection
			}
		}
	}
}

// errConnection is what a caller has if the bridge ends.
var errConnection = errors.New("the connection is lost")

// comeBack has callers ask what has become of their prompts, and participants return.
func (w *world) comeBack() {
	l := w.life
	for _, p := range w.prompts {
		if p.over {
			continue
		}
		if p.id == "" {
			p.over, p.err = true, errConnection
			continue
		}
		l.tasks.Go(func() { w.ask(l, p) })
	}
	for i, token := range w.tokens {
		l.tasks.Go(func() {
			for range reviveTries {
				_, err := l.s.Participants().Join(l.ctx, session.Joining{Token: token, Brings: w.brings(i)})
				if fault.ReasonOf(err) != fault.RuntimeLost {
					return
				}
			}
		})
	}
}

// ask asks the bridge what has become of a prompt that an earlier process acknowledged.
func (w *world) ask(l *life, p *prompt) {
	over := func(out turn.Outcome, err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if l == w.life {
			p.over, p.outcome, p.err = true, out, err
		}
	}
	for {
		found, err := l.s.Sender().Repeat(l.ctx, p.id)
		switch {
		case l.ctx.Err() != nil:
			return
		case errors.Is(err, rpcconn.ErrClosed): // by the end of the process that was to load the session
			continue
		case err != nil:
			over(turn.Outcome{}, err)
		case found.Waiter == nil:
			over(turn.Outcome{}, errEnded)
		default:
			l.await(found.Waiter, over)
		}
		return
	}
}

// errEnded stands for the outcome of a prompt whose turn ended before its caller came back.
var errEnded = errors.New("its turn has ended")

// reader is a caller who reads the durable events, and comes back by its position.
type reader struct {
	*journal.Reader
	at   journal.Position
	seen map[journal.ID]journal.Position
}

func (r *reader) close() {
	if r.Reader != nil {
		r.Close()
		r.Reader = nil
	}
}

// read has the reader read on. It gets each event once, in order, unless a gap says that all is different.
func (w *world) read() {
	r := &w.reader
	if r.Reader == nil {
		var err error
		if r.Reader, err = w.s.Journal().NewReader(r.at, false, func() {}); err != nil {
			w.fail("the reader cannot come back to %v: %v", r.at, err)
			return
		}
	}
	for {
		records, gap := r.Next(nil, 1<<20)
		if gap != nil {
			r.seen = nil
		}
		if gap == nil && len(records) == 0 {
			r.at = r.Position()
			return
		}
		if r.seen == nil {
			r.seen = map[journal.ID]journal.Position{}
		}
		for _, rec := range records {
			if rec.Note != nil || rec.Ephemeral || rec.ID == (journal.ID{}) {
				continue
			}
			if at, twice := r.seen[rec.ID]; twice {
				w.fail("the reader gets the event at %v again, at %v", at, rec.Pos)
			}
			r.seen[rec.ID] = rec.Pos
		}
	}
}

// checkReader: the reader has got all events.
func (w *world) checkReader() {
	w.read()
	all, err := w.s.Journal().NewReader(journal.Position{}, false, func() {})
	if err != nil {
		w.fail("the journal cannot be read: %v", err)
		return
	}
	defer all.Close()
	for {
		records, gap := all.Next(nil, 1<<20)
		if gap == nil && len(records) == 0 {
			return
		}
		for _, rec := range records {
			if rec.Note != nil || rec.Ephemeral || rec.ID == (journal.ID{}) {
				continue
			}
			if at := w.reader.seen[rec.ID]; at != rec.Pos {
				w.fail("the reader has the event at %v from %v", rec.Pos, at)
			}
		}
	}
}

// files keeps the files of the outbox. It implements outbox.Disk.
type files struct {
	mu      sync.Mutex
	content map[string][]byte
}

func (f *files) clone() *files {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := &files{content: map[string][]byte{}}
	for name, data := range f.content {
		next.content[name] = bytes.Clone(data)
	}
	return next
}

// List implements outbox.Disk.
func (f *files) List() ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.content)), nil
}

// Read implements outbox.Disk.
func (f *files) Read(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, ok := f.content[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return bytes.Clone(data), nil
}

// Write implements outbox.Disk.
func (f *files) Write(name string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.content[name] = bytes.Clone(data)
	return nil
}

// Append implements outbox.Disk.
func (f *files) Append(name string, size int64, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.content[name] = append(f.content[name][:size:size], data...)
	return nil
}

// Remove implements outbox.Disk.
func (f *files) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.content, name)
	return nil
}
