package outbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	suffix = ".prompt"
	// diskTimeout is how long a write may take; then the outbox goes on in memory.
	diskTimeout = 2 * time.Second
)

// errSlow reports a disk that does not move.
var errSlow = errors.New("the disk does not answer")

// files writes the files of an outbox, one at a time. A caller waits at most diskTimeout for a write that
// hangs. Later writes fail at once until that write has returned.
type files struct {
	disk Disk
	// busy has capacity 1: held while the disk is written.
	busy chan struct{}

	mu     sync.Mutex
	err    error // of the last write
	closed bool
}

func newFiles(disk Disk) *files { return &files{disk: disk, busy: make(chan struct{}, 1)} }

func (f *files) memory() bool { return f.disk == nil }

func (f *files) problem() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// close has all changes to come do nothing, and waits for the one that is made.
func (f *files) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	if f.disk == nil {
		return
	}
	limit := time.NewTimer(diskTimeout)
	defer limit.Stop()
	select {
	case f.busy <- struct{}{}:
		<-f.busy
	case <-limit.C:
	}
}

func (f *files) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// do makes a change, and gives it diskTimeout.
func (f *files) do(change func() error) error {
	if f.disk == nil {
		return change()
	}
	done := make(chan error, 1)
	go f.write(change, func(err error) { done <- err }) // ends with the disk's call, which nothing can interrupt
	return <-done
}

// write makes a change on the goroutine that calls it, which may hang in the disk's call. done is called once: when the
// change was made, or on another goroutine after diskTimeout.
func (f *files) write(change func() error, done func(error)) {
	if f.disk == nil {
		done(change())
		return
	}
	if f.ended() {
		done(nil)
		return
	}
	limit := time.AfterFunc(diskTimeout, func() { done(f.failed(errSlow)) })
	if !f.acquire() {
		if limit.Stop() {
			done(f.failed(errSlow))
		}
		return
	}
	var err error
	if !f.ended() {
		err = change()
	}
	if err == nil && errors.Is(f.problem(), errSlow) {
		_ = f.failed(nil)
	}
	<-f.busy
	if limit.Stop() {
		done(f.failed(err))
	}
}

// acquire waits for the write before, at most diskTimeout, and not at all for one that hangs.
func (f *files) acquire() bool {
	select {
	case f.busy <- struct{}{}:
		return true
	default:
	}
	if errors.Is(f.problem(), errSlow) {
		return false
	}
	limit := time.NewTimer(diskTimeout)
	defer limit.Stop()
	select {
	case f.busy <- struct{}{}:
		return true
	case <-limit.C:
		return false
	}
}

func (f *files) failed(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	return err
}

func promptFile(n uint64) string { return strconv.FormatUint(n, 10) + suffix }

// readPrompt reads a prompt that has a file.
func (b *Outbox) readPrompt(n uint64) (p Prompt, err error) {
	if b.files.memory() {
		return p, ErrDamaged
	}
	text, err := b.files.disk.Read(promptFile(n))
	if err == nil {
		err = understood(json.Unmarshal(text, &p))
	}
	return p, err
}

// Flush writes down what has changed, and removes the files of prompts that are finished.
func (b *Outbox) Flush() error { return b.files.do(b.flush) }

// flush is Flush for the goroutine that has the disk, if there is one.
func (b *Outbox) flush() error {
	b.mu.Lock()
	if b.files.memory() {
		b.st.sweep()
		b.changed = false
	}
	if !b.changed && len(b.orphans) == 0 {
		b.mu.Unlock()
		return nil
	}
	gone := append(b.orphans, b.st.sweep()...)
	text, err := b.st.encode()
	b.changed, b.orphans = false, nil
	b.mu.Unlock()
	if err == nil {
		err = b.files.disk.Save(text)
	}
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.changed, b.orphans = true, gone
		return err
	}
	for _, name := range gone {
		if err := b.files.disk.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// sweep takes out the entries that are finished and not retired, and returns their files. The caller holds Outbox.mu.
func (s *state) sweep() (gone []string) {
	s.Entries = slices.DeleteFunc(s.Entries, func(e *Entry) bool {
		over := e.finished && !e.retired
		if over && e.stored {
			gone = append(gone, promptFile(e.N))
		}
		return over
	})
	return gone
}

// load reads the stored outbox. A file of a prompt that the state does not list belongs to a call without a reply, and
// becomes an entry without ids. If the state is damaged, any prompt may have been acknowledged: load reports all of them as
// lost, and none is sent again. A disk that cannot be read is no damage.
func (b *Outbox) load() error {
	text, err := b.files.disk.Load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	names, err := b.files.disk.List()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	prompts, st, err := decode(text)
	damaged := err != nil
	if damaged { // no prompt is sent twice
		st = state{}
	}
	b.st = st
	for id := range b.st.Moved {
		b.order = append(b.order, id)
	}
	for _, name := range names {
		n, err := strconv.ParseUint(strings.TrimSuffix(name, suffix), 10, 64)
		if err == nil && strings.HasSuffix(name, suffix) {
			prompts[n] = nil
		}
	}
	known := map[uint64]bool{}
	for _, e := range b.st.Entries {
		known[e.N] = true
	}
	for _, n := range slices.Sorted(maps.Keys(prompts)) {
		if known[n] {
			continue
		}
		if n <= b.st.Next && !damaged { // finished, and not removed any more
			if prompts[n] == nil {
				b.orphans = append(b.orphans, promptFile(n))
			}
			continue
		}
		b.st.Next = max(b.st.Next, n)
		b.st.Entries = append(b.st.Entries, &Entry{N: n, Deliveries: 1, unknown: damaged, Edited: damaged})
	}
	var unread error
	b.st.Entries = slices.DeleteFunc(b.st.Entries, func(e *Entry) bool {
		whole, err := b.restore(e, prompts[e.N])
		unread = cmp.Or(unread, err)
		return !whole
	})
	return cmp.Or(unread, err)
}

// understood returns ErrDamaged for the error of a decoder.
func understood(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// restore takes the text of an entry's prompt, nil if it has a file. It leaves out an entry without its prompt,
// unless the entry was acknowledged: its loss must be reported. The error is the disk's.
func (b *Outbox) restore(e *Entry, text []byte) (keep bool, err error) {
	var p Prompt
	if text == nil {
		p, err = b.readPrompt(e.N)
	} else {
		err = understood(json.Unmarshal(text, &p))
	}
	if err != nil {
		e.Edited = true // the prompt cannot be sent again
		if errors.Is(err, ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return e.Acknowledged(), err
	}
	e.line, e.stored = text, text == nil
	e.messages, e.prompt, e.size = MessagesOf(p), p, len(p.Params)
	if e.GivenAt.IsZero() {
		e.GivenAt = p.AskedAt
	}
	if e.stored || len(p.Lacks) > 0 { // a file is read again when it is needed
		e.prompt.Params = nil
	}
	b.bytes += e.size
	return true, nil
}
