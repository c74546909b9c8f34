// Package joint lets many logs write their newest entries to one file.
//
// A log of package segment has files that it shares with no other, so the entries of a thousand sessions need a
// thousand writes and syncs. In a joint log they need one of each. The entries of each member go to its own log later,
// many at a time: they move. An entry leaves the joint log when the member's own log has it and was synced.
//
// It also has values of the members (see Value), each until its caller has stored it elsewhere.
//
// The joint log holds no marks. Marks, and everything else that changes a member's log, go to that log, after the
// entries before them. So an entry in the joint log is either in the member's own log, or belongs behind its last one.
//
// Append, Tidy and the changes of a member's log are called from one goroutine, or under the member's guard. The other
// methods are safe for concurrent use. The holder of Log.writing changes the joint file, Log.mu guards what is known of
// it and the lists of members and values, Member.mu the entries of a member; they are locked in this order. The package
// starts no goroutines.
package joint

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// Limits bound a joint log. Zero fields have the defaults.
type Limits struct {
	// FileBytes is the size of a file of the joint log; by default 8 MiB.
	FileBytes int64
	// Bytes is the size above which the oldest entries leave the joint log; by default 64 MiB. A log of twice that size
	// takes no more.
	Bytes int64
	// Tails bounds the entries, in bytes, that are in the joint log only, and therefore also in memory; by default
	// 32 MiB.
	Tails int64
	// Tail bounds those of a member; by default 256 KiB.
	Tail int64
	// Stay bounds how long an entry stays: at most twice that, unless a disk fails. By default it is a minute. It is half of
	// that while the log has entries of a session that was deleted.
	Stay time.Duration
}

func (l *Limits) complete() {
	l.FileBytes = cmp.Or(l.FileBytes, 8<<20)
	l.Bytes = cmp.Or(l.Bytes, 64<<20)
	l.Tails = cmp.Or(l.Tails, 32<<20)
	l.Tail = cmp.Or(l.Tail, 256<<10)
	l.Stay = cmp.Or(l.Stay, time.Minute)
}

var (
	// errForm reports an entry that is not one of this version.
	errForm = errors.New("not an entry of a joint log")
	// errFull reports that entries which are to leave the log cannot, because a member's own log takes nothing.
	errFull = errors.New("the joint log is full")
)

// Log is a joint log.
type Log struct {
	dir    string
	o      segment.Options
	limits Limits

	tails  atomic.Int64  // bytes of the members' tails
	synced atomic.Uint64 // entries up to this one survive a crash of the machine
	// cutoff is the number up to which entries are to leave.
	cutoff atomic.Uint64
	// needed is at most the number of the oldest entry that a member needs.
	needed atomic.Uint64

	// writing has capacity 1. Its holder changes the joint file, which may take long.
	writing chan struct{}
	batch   batch // of the holder of writing

	mu      sync.Mutex
	entries *segment.Log
	last    uint64 // no entry has a greater number
	failed  error  // why nothing is appended until the log is empty
	members map[string]*Member
	// inherited are the entries of an earlier process, until their members are attached.
	inherited map[string][]held
	values    map[ID]Value
	damaged   bool
	altered   bool
	ended     uint64 // the number of the last entry that ended a session
	aged      bool   // the current file is as old as Limits.Stay
	tidied    time.Time
	before    uint64 // what last was at tidied
}

// held is an entry of a member in the joint log.
type held struct {
	entry segment.Entry
	at    uint64 // its number in the joint log
	epoch uint64 // of the member's log
	prev  uint64 // the number of the entry before it in the member's log
}

// Open opens the joint log in a directory, with what an earlier process left in it. It fails if that cannot be read.
// SegmentBytes of the options is that of the members' own logs.
func Open(dir string, o segment.Options, limits Limits) (*Log, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	limits.complete()
	if o.SegmentBytes > 0 { // retention drops whole files
		limits.Tail = min(limits.Tail, o.SegmentBytes)
	}
	o.SegmentBytes = limits.FileBytes
	l := &Log{
		dir: dir, o: o, limits: limits, members: map[string]*Member{}, inherited: map[string][]held{},
		values: map[ID]Value{}, writing: make(chan struct{}, 1), tidied: o.Now(),
	}
	entries, found, err := segment.Open(dir, 1, o, l.recover)
	if err != nil {
		return nil, fmt.Errorf("opening the joint log of sessions: %w", err)
	}
	// A torn end is what was never acknowledged. One that was altered may be that, after a crash of the machine.
	l.altered = found.Altered
	l.damaged = found.Skipped > 0 || len(found.SetAside) > 0 || len(found.Holes) > 0
	l.entries, l.last, l.before = entries, entries.Last(), entries.Last()
	return l, nil
}

// lock takes writing. The returned function releases it.
func (l *Log) lock() (unlock func()) {
	l.writing <- struct{}{}
	return func() { <-l.writing }
}

// Bytes returns the size of the joint log.
func (l *Log) Bytes() int64 {
	entries, _, _ := l.state()
	return entries.Size()
}

// Damaged reports whether entries of an earlier process may be missing.
func (l *Log) Damaged() bool { return l.damaged || l.altered }

// appendHead appends the part of an entry's stored form before the member's entry.
func appendHead(dst []byte, key string, h *held) []byte {
	dst = segment.AppendText(dst, key)
	dst = binary.AppendUvarint(dst, h.epoch)
	dst = binary.AppendUvarint(dst, h.prev)
	dst = binary.AppendUvarint(dst, h.entry.Number)
	return append(dst, h.entry.Head...)
}

func parse(body []byte) (key string, h held, err error) {
	rest := segment.NewBody(body)
	key = string(rest.Text())
	h.epoch, h.prev, h.entry.Number = rest.Number(), rest.Number(), rest.Number()
	if !rest.OK {
		return "", h, errForm
	}
	h.entry.Body = slices.Clone(rest.Rest)
	return key, h, nil
}

// Part is what one member appends.
type Part struct {
	Member  *Member
	Entries []segment.Entry // no marks
}

// Append appends entries of several members, whose guards the caller holds. After an error none of them counts as
// appended; after one of the disk all further calls fail until every entry has been moved.
func (l *Log) Append(parts []Part) error {
	defer l.lock()()
	entries, last, err := l.ready()
	if err != nil {
		return err
	}
	b := &l.batch
	defer b.reset()
	for _, p := range parts {
		prev, epoch := p.Member.Last(), p.Member.Epoch()
		for _, e := range p.Entries {
			last++
			b.add(p.Member.key, held{entry: e, at: last, epoch: epoch, prev: prev})
			prev = e.Number
		}
	}
	if err := l.append(entries, b, last); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	tails := b.entries
	for _, p := range parts {
		n := len(p.Entries)
		l.adopt(p.Member, tails[:n])
		tails = tails[n:]
	}
	return nil
}

// batch collects the entries of one write. It keeps its memory for the next one.
type batch struct {
	entries []held
	heads   []byte
	stored  []segment.Entry
}

// keepBatch bounds the memory that a batch keeps, in entries.
const keepBatch = 64

func (b *batch) add(key string, h held) {
	begin := len(b.heads)
	b.heads = appendHead(b.heads, key, &h) // grown, it leaves the earlier heads where they are
	b.entries = append(b.entries, h)
	b.stored = append(b.stored, segment.Entry{Number: h.at, Head: b.heads[begin:], Body: h.entry.Body})
}

// reset forgets the entries, which others keep.
func (b *batch) reset() {
	if cap(b.entries) > keepBatch {
		*b = batch{}
		return
	}
	clear(b.entries)
	clear(b.stored)
	b.entries, b.heads, b.stored = b.entries[:0], b.heads[:0], b.stored[:0]
}

// ready returns the log with the joint file and the greatest number, unless nothing can be appended.
func (l *Log) ready() (entries *segment.Log, last uint64, err error) {
	entries, last, err = l.state()
	if err == nil && entries.Size() > 2*l.limits.Bytes {
		err = errFull
	}
	return entries, last, err
}

// append appends a batch, whose last entry has a number, to the joint file. The caller holds writing, and not mu: the
// disk may hang.
func (l *Log) append(entries *segment.Log, b *batch, last uint64) error {
	err := entries.Append(b.stored)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = last
	if err != nil {
		l.failed = err
	}
	return err
}

// state returns the log with the joint file, the greatest number, and why nothing can be appended, if so.
func (l *Log) state() (entries *segment.Log, last uint64, failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries, l.last, l.failed
}

// adopt adds entries to the tail of a member. The caller holds mu.
func (l *Log) adopt(m *Member, entries []held) {
	if len(entries) > 0 {
		m.adopt(entries)
		l.members[m.key] = m
	}
}

// Sync makes the entries survive a crash of the machine. After an error nothing is appended until they are moved.
func (l *Log) Sync() error {
	entries, _, failed := l.state()
	if failed != nil {
		return failed
	}
	through, err := entries.Sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries != entries {
		return nil // it was empty, and is another by now
	}
	if err != nil {
		l.failed = err
		return err
	}
	l.synced.Store(max(l.synced.Load(), through))
	return nil
}

// Full reports whether the tails have more bytes than Limits.Tails, so that Tidy has something to do.
func (l *Log) Full() bool { return l.tails.Load() > l.limits.Tails }

// Tidy moves entries that are to leave the log, and drops those that no member needs any more. The caller asks Due first.
// Tidy passes move the keys of entries of an earlier process that are to leave the log and have no member, and values that
// are to be moved.
func (l *Log) Tidy(move func(keys []string, values []ID) error) error {
	due, orphans, values := l.due()
	var errs []error
	for _, m := range due {
		if err := m.Move(); err != nil && m.first() != 0 {
			errs = append(errs, err)
		}
	}
	if len(orphans)+len(values) > 0 {
		errs = append(errs, move(orphans, values))
	}
	return errors.Join(append(errs, l.drop())...)
}

// Due moves the cutoff, and reports whether there is something to move or to drop.
func (l *Log) Due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	cutoff := l.cutoff.Load()
	stay := l.limits.Stay
	if l.ended > cutoff {
		stay /= 2
	}
	if now := l.o.Now(); now.Sub(l.tidied) >= stay {
		cutoff = max(cutoff, l.before)
		l.tidied, l.before, l.aged = now, l.last, true
	}
	if l.failed != nil {
		cutoff = l.last
	} else if oldest, ok := l.entries.Oldest(); ok && l.entries.Size() > l.limits.Bytes {
		cutoff = max(cutoff, oldest)
	}
	l.cutoff.Store(cutoff)
	return l.failed != nil || l.aged || l.needed.Load() <= cutoff || l.Full()
}

// due returns what has to be moved now: members, oldest first, the keys of entries without a member, and values.
func (l *Log) due() (due []*Member, orphans []string, values []ID) {
	cutoff, over := l.cutoff.Load(), int64(0)
	if l.Full() {
		over = l.tails.Load() - l.limits.Tails/4*3
	}
	members := l.list()
	slices.SortFunc(members, func(a, b *Member) int {
		first, _ := a.oldest()
		second, _ := b.oldest()
		return cmp.Compare(first, second)
	})
	for _, m := range members {
		first, bytes := m.oldest()
		if m.isApart() {
			continue
		}
		if m.unsafe() || first != 0 && (first <= cutoff || over > 0) {
			due = append(due, m)
			over -= bytes
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, entries := range l.inherited {
		if entries[0].at <= cutoff {
			orphans = append(orphans, key)
		}
	}
	return due, orphans, l.dueValues(cutoff, over)
}

// Leaving reports whether entries are to leave the log, so that SyncMoved may have something to do.
func (l *Log) Leaving() bool { return l.needed.Load() <= l.cutoff.Load() }

// SyncMoved syncs the logs of members whose moved entries are to leave the joint log. It takes little more time
// than the limit.
func (l *Log) SyncMoved(limit time.Duration) {
	if !l.Leaving() {
		return
	}
	cutoff, begin := l.cutoff.Load(), l.o.Now()
	for _, m := range l.list() {
		if first := m.movedFrom(); first == 0 || first > cutoff {
			continue
		}
		_ = m.SyncOwn() // after an error the entries stay
		if l.o.Now().Sub(begin) > limit {
			return
		}
	}
}

func (l *Log) list() []*Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.members))
}

// drop drops the files that no member needs.
func (l *Log) drop() error {
	defer l.lock()()
	needed := l.need()
	entries, last, _ := l.state()
	for {
		oldest, ok := entries.Oldest()
		if !ok || oldest >= needed {
			break
		}
		if err := entries.DropOldest(); err != nil {
			return err
		}
	}
	if l.hasAged() { // what was deleted does not stay until the file is full
		entries.Seal()
	}
	if needed <= last || entries.Size() == 0 {
		return nil
	}
	err := errors.Join(entries.Rest(), l.o.FS.RemoveAll(l.dir))
	if err == nil && l.o.SyncFiles { // else old values could come back
		err = l.o.FS.SyncDir(filepath.Dir(l.dir))
	}
	if err == nil {
		entries, _, err = segment.Open(l.dir, 1, l.o, func(uint64, []byte) error { return errForm })
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.entries = entries
	}
	l.failed = err // the file is in an unknown state
	return err
}

// hasAged reports, once, that the current file is to be the last one of its time.
func (l *Log) hasAged() (aged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	aged, l.aged = l.aged, false
	return aged
}

// need finds the number of the oldest entry that a member needs; without one it is greater than all numbers.
func (l *Log) need() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	needed := l.last + 1
	for key, m := range l.members {
		if first := m.first(); first != 0 {
			needed = min(needed, first)
		} else {
			delete(l.members, key)
		}
	}
	for _, entries := range l.inherited {
		needed = min(needed, entries[0].at)
	}
	for _, v := range l.values {
		needed = min(needed, v.At)
	}
	l.needed.Store(needed)
	return needed
}

// Keys returns the keys of members that need the log, and those for which an earlier process left entries.
func (l *Log) Keys() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Keys(l.inherited)), maps.Keys(l.members))
}

// Member returns the member with a key that needs the log, nil if there is none.
func (l *Log) Member(key string) *Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.members[key]
}

// Inherits reports whether an earlier process left entries for a key whose log has not been attached.
func (l *Log) Inherits(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inherited[key]) > 0
}

// Copies returns the Copies of a log's options: what an earlier process left for it. A crash of the machine can spoil
// entries that were moved and not synced, before others that are intact.
func (l *Log) Copies(key string) func(epoch, after, before uint64) []segment.Copy {
	return func(epoch, after, before uint64) (copies []segment.Copy) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, h := range l.inherited[key] {
			if h.epoch == epoch && after < h.entry.Number && h.entry.Number < before {
				copies = append(copies, segment.Copy{Entry: h.entry, Prev: h.prev})
			}
		}
		return copies
	}
}

// Forget drops the entries and the values of a session that is deleted.
func (l *Log) Forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.inherited, key)
	l.setValue(Value{ID: ID{key, gone}})
	if m := l.members[key]; m != nil {
		m.release()
		delete(l.members, key)
	}
}

// Close moves and syncs what it can within a time, and closes the log. The next process moves the rest, and all values.
func (l *Log) Close(move func(keys []string, values []ID) error, limit time.Duration) error {
	l.mu.Lock()
	l.before, l.tidied = l.last, time.Time{}
	sync := l.o.SyncFiles && l.failed == nil
	l.mu.Unlock()
	var err error
	if sync { // for values that were put without one
		err = l.Sync()
	}
	if l.Due() {
		err = errors.Join(err, l.Tidy(move))
	}
	l.SyncMoved(limit)
	err = errors.Join(err, l.drop())
	entries, _, _ := l.state()
	return errors.Join(err, entries.Rest())
}
