package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	stateFile = "state"
	suffix    = ".prompt"
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
	if f.disk == nil || f.ended() {
		return nil
	}
	limit := time.NewTimer(diskTimeout)
	defer limit.Stop()
	wait := limit.C
	if errors.Is(f.problem(), errSlow) {
		soon := make(chan time.Time)
		close(soon)
		wait = soon
	}
	select {
	case f.busy <- struct{}{}:
	default:
		select {
		case f.busy <- struct{}{}:
		case <-wait:
			return f.failed(errSlow)
		}
	}
	done := make(chan error, 1)
	go func() { // ends with the disk's call, which nothing can interrupt
		var err error
		if !f.ended() {
			err = change()
		}
		if err == nil && errors.Is(f.problem(), errSlow) {
			_ = f.failed(nil)
		}
		<-f.busy
		done <- err
	}()
	select {
	case err := <-done:
		return f.failed(err)
	case <-limit.C:
		return f.failed(errSlow)
	}
}

func (f *files) failed(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	return err
}

func promptFile(n uint64) string { return strconv.FormatUint(n, 10) + suffix }

func (f *files) writePrompt(n uint64, p Prompt) error {
	if f.disk == nil {
		return nil
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return f.do(func() error { return f.disk.Write(promptFile(n), text) })
}

func (f *files) readPrompt(n uint64) (p Prompt, err error) {
	if f.disk == nil {
		return p, errDamaged
	}
	text, err := f.disk.Read(promptFile(n))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}

// Flush writes down what has changed, and removes the files of prompts that are finished.
func (b *Box) Flush() error {
	if b.files.disk == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.sweep()
		b.changed = false
		return nil
	}
	return b.files.do(func() error {
		b.mu.Lock()
		if !b.changed && len(b.orphans) == 0 {
			b.mu.Unlock()
			return nil
		}
		gone := append(b.orphans, b.sweep()...)
		text, err := json.Marshal(b.st)
		b.changed = false
		b.mu.Unlock()
		if err == nil {
			err = b.files.disk.Write(stateFile, text)
		}
		if err != nil {
			b.mu.Lock()
			b.changed, b.orphans = true, gone
			b.mu.Unlock()
			return err
		}
		b.orphans = nil
		for _, name := range gone {
			if err := b.files.disk.Remove(name); err != nil {
				return err
			}
		}
		return nil
	})
}

// sweep takes out the entries that are finished, and returns their files. The caller holds mu.
func (b *Box) sweep() (gone []string) {
	b.st.Entries = slices.DeleteFunc(b.st.Entries, func(e *Entry) bool {
		if e.finished && e.stored {
			gone = append(gone, promptFile(e.N))
		}
		return e.finished
	})
	return gone
}

// load reads the stored outbox. A prompt's file that the state does not list belongs to a call without a reply,
// and becomes an entry without ids. If the state is damaged, any prompt may have been acknowledged: load
// reports all of them as lost, and none is sent again.
func (b *Box) load() error {
	names, err := b.files.disk.List()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := b.files.disk.Read(stateFile)
	if err == nil {
		err = json.Unmarshal(text, &b.st)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil { // so that no prompt is sent twice
		b.st = state{}
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	for id := range b.st.Moved {
		b.order = append(b.order, id)
	}
	damaged := err != nil
	known := map[string]*Entry{}
	for _, e := range b.st.Entries {
		known[promptFile(e.N)] = e
	}
	for _, name := range names {
		n, parseErr := strconv.ParseUint(strings.TrimSuffix(name, suffix), 10, 64)
		if parseErr != nil || !strings.HasSuffix(name, suffix) || known[name] != nil {
			continue
		}
		if n <= b.st.Next && !damaged { // finished, and not removed any more
			b.orphans = append(b.orphans, name)
			continue
		}
		b.st.Next = max(b.st.Next, n)
		e := &Entry{N: n, Deliveries: 1, unknown: damaged, Edited: damaged}
		known[name] = e
		b.st.Entries = append(b.st.Entries, e)
	}
	slices.SortFunc(b.st.Entries, func(x, y *Entry) int { return int(int64(x.N) - int64(y.N)) })
	b.st.Entries = slices.DeleteFunc(b.st.Entries, func(e *Entry) bool { return !b.restore(e) })
	return err
}

// restore reads the prompt of an entry. It leaves out an entry without its prompt, unless the entry was
// acknowledged: its loss must be reported.
func (b *Box) restore(e *Entry) bool {
	p, err := b.files.readPrompt(e.N)
	if err != nil {
		e.Edited = true // the prompt cannot be sent again
		return e.Acknowledged()
	}
	e.stored, e.messages, e.prompt, e.size = true, messagesOf(p), p, len(p.Params)
	if e.GivenAt.IsZero() {
		e.GivenAt = p.AskedAt
	}
	e.prompt.Params = nil // read again when it is needed
	b.bytes += e.size
	return true
}
