// Package outbox stores the prompts of one session until the CLI has written them to its history.
//
// The CLI holds an acknowledged prompt in memory until it processes it, and writes it to the history some 100
// ms later. Meanwhile the outbox has the prompt on disk. After the end of a CLI process or of the bridge, the
// next load of the session calls Decide, which compares the outbox with the history: a prompt in the history
// was processed; a prompt that is not there is sent to the CLI again.
//
// What the disk has of an outbox is saved as a whole: the state of all prompts with their texts. It is saved before a
// caller receives its reply, and by Add also before the prompt is sent. A large prompt has a file of its own. Without a
// Disk, or after a failed write, the outbox is in memory: it then survives the CLI process but not the bridge.
package outbox

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// The limits of an outbox. A prompt counts until its turn has ended.
const (
	// MaxEntries bounds the prompts of a session whose turns have not ended.
	MaxEntries = 256
	// MaxBytes bounds their size; one prompt always fits.
	MaxBytes = 192 << 20
	// MaxDeliveries bounds how often a prompt is sent to the CLI: the prompt may be the reason for which each
	// process ends.
	MaxDeliveries = 3
	// maxRemembered bounds the ids of lost and replaced messages. maxNotes bounds the notes about them for
	// readers.
	maxRemembered, maxNotes = 1024, 64
	// MaxInLog bounds the bytes of the prompts that are saved with the state, and in memory although they are on disk.
	// Further ones have a file each.
	MaxInLog = 64 << 10
)

// Disk keeps what an outbox has, as backend.Files says.
type Disk = backend.Files

// Prompt is a call of the CLI that sends messages.
type Prompt struct {
	// Method is the CLI's method; empty for session.send.
	Method string `json:"method,omitempty"`
	// Params are its parameters: on disk without their secrets.
	Params json.RawMessage `json:"params"`
	// Override says that the prompt's headers take the place of the provider's, Immediate
	// that it steers the running turn.
	Override  bool `json:"override,omitempty"`
	Immediate bool `json:"immediate,omitempty"`
	// Request is the request id under which the caller may repeat it, with its scope.
	Request string `json:"request,omitempty"`
	// AskedAt is when the caller asked.
	AskedAt time.Time `json:"askedAt"`
	// Lacks are the paths of secrets that are not on disk.
	Lacks []string `json:"lacks,omitempty"`
	// Continues says that the prompt tells the agent to continue an interrupted turn, and for which time in a row.
	// It is zero for a prompt of a caller.
	Continues int `json:"continues,omitempty"`
}

// Entry is what is known of a prompt.
type Entry struct {
	// N numbers the entries in the order in which they were added. A continuation comes before entries that were owed
	// then.
	N uint64 `json:"n"`
	// IDs are the CLI's ids of its messages; none while the CLI has not answered.
	IDs []string `json:"ids,omitempty"`
	// Was are the ids of earlier deliveries. An entry with IDs or Was was acknowledged.
	Was []string `json:"was,omitempty"`
	// Before is the end of the journal before the latest delivery, also if the journal has not reserved that number: an
	// earlier message with the same text is not this one. GivenAt is the time.
	Before  journal.Position `json:"before"`
	GivenAt time.Time        `json:"givenAt"`
	// AnsweredAt is the end of the journal when the CLI answered the latest delivery.
	AnsweredAt journal.Position `json:"answeredAt,omitzero"`
	// Deliveries is the number of times that the prompt was sent to the CLI.
	Deliveries int `json:"deliveries"`
	// Done is how many of its messages were taken up before the latest delivery.
	Done int `json:"done,omitempty"`
	// Ended reports that the turn was lost with its runtime, and that readers know it. The history still
	// decides whether the prompt is part of the conversation.
	Ended bool `json:"ended,omitempty"`
	// Edited reports that a caller has changed the CLI's queue and may have withdrawn the prompt.
	Edited bool `json:"edited,omitempty"`

	// Owed reports that the prompt must be sent to the CLI again.
	Owed bool `json:"owed,omitempty"`

	prompt   Prompt
	messages []Message // may be nil while prompt has its parameters
	size     int
	// line is the stored form of a prompt that has no file.
	line     []byte
	stored   bool // the prompt has a file
	passed   bool // the history was compared while the CLI's answer was awaited
	finished bool // nothing more is to be known of it; it goes with the next flush, unless it is retired
	retired  bool
	// endedAt is the end of the journal when the entry was retired.
	endedAt journal.Position
	unknown bool // the state was damaged, so that it may have been acknowledged
}

// Acknowledged reports whether the CLI has answered it at least once, or whether it is the bridge's own.
func (e *Entry) Acknowledged() bool {
	return len(e.IDs) > 0 || len(e.Was) > 0 || e.unknown || e.prompt.Continues > 0
}

// Names are all ids that the CLI has given its messages, oldest first.
func (e *Entry) Names() []string { return append(slices.Clone(e.Was), e.IDs...) }

// Prompt returns the prompt.
func (e *Entry) Prompt() Prompt { return e.prompt }

// Note is a note about prompts for readers of the session. It is valid for the journal's epoch.
type Note struct {
	At journal.Position `json:"at"`
	// IDs are the messages' ids as the callers know them.
	IDs []string `json:"ids"`
	// As are the new ids of messages that were sent to the CLI again. Without them the messages are lost, for
	// the reason.
	As []string `json:"as,omitempty"`
	// Continues is that of the prompt. With it and no IDs, As is the id of the first delivery of a continuation.
	Continues int    `json:"continues,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Text      string `json:"text,omitempty"`
}

// state is what is known of all prompts.
type state struct {
	Next    uint64            `json:"next"`
	Entries []*Entry          `json:"entries,omitempty"`
	Lost    []lost            `json:"lost,omitempty"`
	Moved   map[string]string `json:"moved,omitempty"`
	Notes   []Note            `json:"notes,omitempty"`
}

// lost is a message that is not part of the conversation.
type lost struct {
	ID     string `json:"id"`
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
}

// Outbox is the outbox of a session. It is safe for concurrent use. Some methods change the outbox in memory only;
// Flush then writes the changes to the disk.
type Outbox struct {
	files *files

	mu      sync.Mutex
	st      state
	order   []string // the keys of st.Moved, oldest first
	bytes   int
	changed bool
	orphans []string // files of prompts that nothing is known of
}

// Open returns the outbox that a disk holds; nil keeps it in memory. With ErrDamaged it returns an outbox, too: load
// says what it has. Any other error is the disk's.
func Open(disk Disk) (*Outbox, error) {
	b := &Outbox{files: newFiles(disk)}
	if disk == nil {
		return b, nil
	}
	return b, b.load()
}

// moved is the error of a change that a later owner of the session has refused.
func moved(cause error) error {
	return fault.Wrap(cause, fault.SessionUnavailable, "the session is moving to another server")
}

// Add stores a prompt before it is sent to the CLI. before is the end of the journal. A full outbox
// returns LIMIT_EXCEEDED. inMemory is true if there is no disk, or if it failed. If the session has another owner, Add
// stores nothing and returns SESSION_UNAVAILABLE.
func (b *Outbox) Add(p Prompt, secrets secretsOf, before journal.Position) (n uint64, inMemory bool, err error) {
	return b.add(p, secrets, before, false)
}

// AddLater is Add, but leaves the writing to Accepted, which needs one write for the prompt and its answer. A prompt
// whose call has no reply when the process ends need not be stored: the next process would not send it again.
// A prompt that has a file is stored at once, and inMemory is then as for Add.
func (b *Outbox) AddLater(p Prompt, secrets secretsOf, before journal.Position) (n uint64, inMemory bool, err error) {
	return b.add(p, secrets, before, true)
}

// Fits reports whether AddLater writes nothing for a prompt of a size.
func (b *Outbox) Fits(size int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.st.inLog()+2*size <= MaxInLog // the stored form has more than the prompt
}

// secretsOf returns the stored form of parameters, and the paths of the secrets that it omits.
type secretsOf = func(params json.RawMessage) (json.RawMessage, []string)

// said returns the messages of the prompt. The digests of a small prompt are made when they are needed.
func (e *Entry) said() []Message {
	if e.messages == nil {
		return MessagesOf(e.prompt)
	}
	return e.messages
}

// add stores a prompt; later leaves it to the next flush if it needs no file.
func (b *Outbox) add(p Prompt, secrets secretsOf, before journal.Position, later bool) (n uint64, inMemory bool, err error) {
	e := &Entry{Before: before, GivenAt: p.AskedAt, Deliveries: 1, prompt: p, size: len(p.Params)}
	var text []byte
	if !b.files.memory() {
		e.prompt.Params, e.prompt.Lacks = secrets(p.Params)
		if text, err = json.Marshal(&e.prompt); err != nil {
			return 0, false, err
		}
		e.prompt.Params = p.Params
	}
	b.mu.Lock()
	if b.st.inLog()+len(text) <= MaxInLog {
		e.line = text
	} else {
		e.messages = MessagesOf(p) // its parameters will not stay in memory
	}
	err = b.insert(e)
	b.changed = b.changed || err == nil && e.line != nil && !later
	b.mu.Unlock()
	switch {
	case err != nil:
		return 0, false, err
	case b.files.memory():
		return e.N, true, nil
	case e.line == nil:
		err = b.files.do(func() error { return b.files.disk.Write(promptFile(e.N), text) })
	case !later:
		err = b.Flush()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(err, backend.ErrStale) {
		b.finish(e)
		return 0, false, moved(err)
	}
	if e.stored = err == nil && e.line == nil; e.stored && len(e.prompt.Lacks) == 0 {
		e.prompt.Params = nil // it is read again when it is needed
	}
	return e.N, err != nil, nil
}

// insert numbers an entry and adds it to those in memory. The caller holds mu.
func (b *Outbox) insert(e *Entry) error {
	live := 0
	for _, o := range b.st.Entries {
		if !o.finished {
			live++
		}
	}
	if live >= MaxEntries || live > 0 && b.bytes+e.size > MaxBytes {
		return fault.New(fault.LimitExceeded, "the turns of %d prompts with %d bytes have not ended in this session; "+
			"at most %d prompts with %d bytes are allowed", live, b.bytes, MaxEntries, MaxBytes).
			With("limit", "session_prompts")
	}
	b.st.Next++
	e.N = b.st.Next
	at := len(b.st.Entries)
	if e.Owed {
		if i := slices.IndexFunc(b.st.Entries, func(o *Entry) bool { return o.Owed && !o.finished }); i >= 0 {
			at = i
		}
	}
	b.st.Entries = slices.Insert(b.st.Entries, at, e)
	b.bytes += e.size
	b.changed = b.changed || e.Owed
	return nil
}

// Accepted notes the CLI's answer, before the caller has it, on a goroutine that may hang in the disk's call. at is the
// end of the journal when the CLI answered. done is called once: before Accepted returns, or on another goroutine if
// the disk does not answer. again reports that the session was loaded anew meanwhile and the history lacks the prompt: it is
// owed then. If the session has another owner, the error is SESSION_UNAVAILABLE: that owner decides what becomes of the
// prompt, without this answer.
func (b *Outbox) Accepted(
	n uint64, ids []string, at journal.Position, done func(durable, again bool, err error),
) {
	b.mu.Lock()
	e := b.st.find(n)
	if e == nil {
		b.mu.Unlock()
		done(true, false, nil)
		return
	}
	e.IDs, e.AnsweredAt = ids, at
	if e.passed {
		e.passed, e.Owed = false, true
	}
	again := e.Owed
	b.changed = true
	b.mu.Unlock()
	b.files.write(b.flush, func(err error) {
		if errors.Is(err, backend.ErrStale) {
			done(false, false, moved(err))
			return
		}
		b.mu.Lock()
		durable := err == nil && (e.stored || e.line != nil) && !b.files.memory()
		b.mu.Unlock()
		done(durable, again, nil)
	})
}

// Finish notes, in memory, that nothing more is to be known of a prompt. It reports whether
// the outbox had it.
func (b *Outbox) Finish(n uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.st.find(n)
	if e == nil || e.finished {
		return false
	}
	b.finish(e)
	return true
}

func (b *Outbox) finish(e *Entry) {
	e.finished, e.Owed, b.changed = true, false, true
	b.bytes -= e.size
	e.prompt.Params, e.size = nil, 0
}

// Retire notes, in memory, that the turn of a prompt has ended. end is the end of the journal then. The disk has the
// prompt until TurnsStored: a process that ends before the journal has the turn must not lose both.
func (b *Outbox) Retire(n uint64, end journal.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.st.find(n); e != nil && !e.finished {
		b.finish(e)
		e.retired, e.endedAt = true, end
	}
}

// TurnsStored notes that the journal has stored all turns through a position: the next flush removes their retired prompts, and
// those of earlier epochs. It reports whether others are retired.
func (b *Outbox) TurnsStored(through journal.Position) (more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.st.Entries {
		switch {
		case !e.retired:
		case e.endedAt.Epoch == through.Epoch && e.endedAt.Seq > through.Seq:
			more = true
		default:
			e.retired, b.changed = false, true
		}
	}
	return more
}

// End records in memory that the turn of a prompt was lost, and that readers know it.
func (b *Outbox) End(n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.st.find(n); e != nil && !e.finished {
		e.Ended, b.changed = true, true
	}
}

// Edit records in memory that a caller has changed the CLI's queue, or that a later state of the outbox may be lost: none of
// the prompts is sent again.
func (b *Outbox) Edit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.st.Entries {
		e.Edited, b.changed = true, true
	}
}

// Clear finishes, in memory, the prompts that which accepts, and returns their numbers.
func (b *Outbox) Clear(which func(*Entry) bool) (cleared []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.st.Entries {
		if !e.finished && which(e) {
			cleared = append(cleared, e.N)
			b.finish(e)
		}
	}
	return cleared
}

// Entries are copies of the prompts of which something is still to be known, in order.
func (b *Outbox) Entries() (out []Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.st.Entries {
		if !e.finished {
			out = append(out, *e)
		}
	}
	return out
}

// Empty reports whether no prompt is left of which something is to be known.
func (b *Outbox) Empty() bool { return len(b.Entries()) == 0 }

// Pending reports whether the outbox has the message of an id, or of an acknowledged request.
func (b *Outbox) Pending(id string) bool {
	return slices.ContainsFunc(b.Entries(), func(e Entry) bool { return slices.Contains(e.IDs, id) || slices.Contains(e.Was, id) })
}

// AnswerTo returns the first message's id of an acknowledged prompt by its request.
func (b *Outbox) AnswerTo(request string) (id string, before journal.Position, ok bool) {
	for _, e := range b.Entries() {
		if request != "" && e.prompt.Request == request && e.Acknowledged() {
			if ids := e.Names(); len(ids) > 0 {
				return ids[0], e.Before, true
			}
		}
	}
	return "", journal.Position{}, false
}

// Pass notes, in memory, that the history lacks a prompt whose answer is still awaited.
func (b *Outbox) Pass(n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.st.find(n); e != nil {
		e.passed = true
	}
}

// Close ends the outbox: nothing of it is written any more.
func (b *Outbox) Close() { b.files.close() }

// Problem is why the outbox is not on disk; nil if it is.
func (b *Outbox) Problem() error { return b.files.problem() }

func (s *state) find(n uint64) *Entry {
	for _, e := range s.Entries {
		if e.N == n {
			return e
		}
	}
	return nil
}

// ErrDamaged reports a file of the outbox whose content cannot be understood.
var ErrDamaged = errors.New("the outbox is damaged")
