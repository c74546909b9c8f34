package backendtest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// trimBytes is how much of a log is to stay when it is trimmed. An implementation that removes
// entries in groups makes groups of at most half of that.
const trimBytes = 256 << 10

// Logs tests logs. open returns logs that have no entries.
func Logs(t *testing.T, open func(testing.TB) backend.Logs) { runAll(t, logChecks, open) }

var logChecks = []check[backend.Logs]{
	{"a new log", logNew},
	{"entries are read from a position", logReads},
	{"what was given is copied", logCopies},
	{"a log is opened again", logReopens},
	{"an unknown last entry is refused", logExpectsLast},
	{"an earlier term is refused", logFencesTerm},
	{"a log is not opened for an earlier term", logFencesOpen},
	{"the oldest entries are trimmed", logTrims},
	{"a later epoch replaces everything", logReplaces},
	{"a deleted log is gone", logDeletes},
	{"sessions are independent", logSessions},
}

// entry returns an entry whose body tells its number.
func entry(number uint64) backend.Entry {
	return backend.Entry{Number: number, Head: []byte("h"), Body: fmt.Appendf(nil, "%d", number)}
}

func entries(numbers ...uint64) (out []backend.Entry) {
	for _, n := range numbers {
		out = append(out, entry(n))
	}
	return out
}

// opened is a log with what Open visited.
type opened struct {
	backend.Log
	found backend.Recovered
	had   []uint64
	err   error
}

// openLog opens a log. Its entries must be of the form of entry.
func openLog(logs backend.Logs, session string, term, epoch uint64) (o opened) {
	var wrong error
	o.Log, o.found, o.err = logs.Open(session, term, epoch, func(n uint64, body []byte) error {
		o.had = append(o.had, n)
		wrong = errors.Join(wrong, checkBody(n, body))
		return nil
	})
	o.err = errors.Join(o.err, wrong)
	return o
}

func checkBody(n uint64, body []byte) error {
	if e := entry(n); !bytes.Equal(body, append(e.Head, e.Body...)) {
		return fmt.Errorf("entry %d is %q", n, body)
	}
	return nil
}

// numbers reads the numbers of a log's entries after one.
func numbers(log backend.Log, after uint64) (out []uint64, err error) {
	var wrong error
	err = log.Read(after, func(n uint64, body []byte) bool {
		out = append(out, n)
		wrong = errors.Join(wrong, checkBody(n, body))
		return true
	})
	return out, errors.Join(err, wrong)
}

// has checks what a log holds.
func has(log backend.Log, want ...uint64) error {
	got, err := numbers(log, 0)
	if err != nil || !slices.Equal(got, want) {
		return fmt.Errorf("the log has the entries %d, %v; want %d", got, err, want)
	}
	if last := append([]uint64{0}, want...)[len(want)]; log.Last() != last {
		return fmt.Errorf("the last entry is %d, want %d", log.Last(), last)
	}
	return nil
}

// begun opens a new log in term 1 and epoch 7 and appends entries.
func begun(logs backend.Logs, session string, list ...uint64) (opened, error) {
	o := openLog(logs, session, 1, 7)
	if o.err != nil {
		return o, fmt.Errorf("opening: %v", o.err)
	}
	if err := o.Append(0, entries(list...)); err != nil {
		return o, fmt.Errorf("appending: %v", err)
	}
	return o, has(o, list...)
}

func logNew(t testing.TB, open func(testing.TB) backend.Logs) error {
	o, err := begun(open(t), "s")
	if err != nil {
		return err
	}
	if o.Epoch() != 7 || o.Last() != 0 || o.Trimmed() != 0 || o.Size() != 0 || len(o.found.Mark) > 0 ||
		o.found.Damaged() {
		return fmt.Errorf("it is of epoch %d, from %d to %d, %d bytes, %+v", o.Epoch(), o.Trimmed(), o.Last(), o.Size(),
			o.found)
	}
	return nil
}

func logReads(t testing.TB, open func(testing.TB) backend.Logs) error {
	o, err := begun(open(t), "s", 1, 2, 5, 9)
	if err != nil {
		return err
	}
	for after, want := range map[uint64][]uint64{1: {2, 5, 9}, 2: {5, 9}, 3: {5, 9}, 5: {9}, 9: nil, 10: nil} {
		if got, err := numbers(o, after); err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("after %d come %d, %v; want %d", after, got, err, want)
		}
	}
	calls := 0
	if err := o.Read(0, func(uint64, []byte) bool { calls++; return calls < 2 }); err != nil || calls != 2 {
		return fmt.Errorf("stopped after two entries, Read made %d calls: %v", calls, err)
	}
	if through, err := o.Sync(); err != nil || through != 9 || o.Size() == 0 {
		return fmt.Errorf("synced through %d of %d bytes, %v", through, o.Size(), err)
	}
	if err := errors.Join(o.Rest(), o.Append(9, entries(10))); err != nil {
		return fmt.Errorf("appending after a rest: %v", err)
	}
	return has(o, 1, 2, 5, 9, 10)
}

func logCopies(t testing.TB, open func(testing.TB) backend.Logs) error {
	o, err := begun(open(t), "s")
	if err != nil {
		return err
	}
	list := entries(1, 2)
	err = o.Append(0, list)
	for _, e := range list {
		clear(e.Head)
		clear(e.Body)
	}
	return errors.Join(err, has(o, 1, 2))
}

func logReopens(t testing.TB, open func(testing.TB) backend.Logs) error {
	logs := open(t)
	o, err := begun(logs, "s", 1, 3)
	if err != nil {
		return err
	}
	marks := []backend.Entry{{Mark: true, Body: []byte("old")}, entry(4), {Mark: true, Body: []byte("new")}, entry(5)}
	if err := o.Append(3, marks); err != nil {
		return err
	}
	again := openLog(logs, "s", 2, 8)
	if again.err != nil || again.Epoch() != 7 || string(again.found.Mark) != "new" ||
		!slices.Equal(again.had, []uint64{1, 3, 4, 5}) {
		return fmt.Errorf("opened again it has %d with mark %q: %v", again.had, again.found.Mark, again.err)
	}
	if err := again.Append(5, entries(6)); err != nil {
		return err
	}
	return has(again, 1, 3, 4, 5, 6)
}

func logExpectsLast(t testing.TB, open func(testing.TB) backend.Logs) error {
	o, err := begun(open(t), "s", 1, 2)
	if err != nil {
		return err
	}
	for _, last := range []uint64{0, 1, 3} {
		if err := o.Append(last, entries(5)); !errors.Is(err, backend.ErrStale) {
			return fmt.Errorf("behind entry %d, which is not the last one, Append returns %v", last, err)
		}
	}
	return has(o, 1, 2)
}

func logFencesTerm(t testing.TB, open func(testing.TB) backend.Logs) error {
	logs := open(t)
	old, err := begun(logs, "s", 1)
	if err != nil {
		return err
	}
	current := openLog(logs, "s", 2, 7)
	if current.err != nil {
		return current.err
	}
	for name, change := range changes(old) {
		if err := change(); !errors.Is(err, backend.ErrStale) {
			return fmt.Errorf("%s in an earlier term returns %v", name, err)
		}
	}
	if err := has(current, 1); err != nil {
		return err
	}
	if err := current.Append(1, entries(2)); err != nil {
		return fmt.Errorf("appending in the current term: %v", err)
	}
	return has(current, 1, 2)
}

// changes are the calls that change a log with one entry.
func changes(log backend.Log) map[string]func() error {
	return map[string]func() error{
		"Append":  func() error { return log.Append(1, entries(2)) },
		"Replace": func() error { return log.Replace(9, entries(1)) },
		"Trim":    func() error { _, err := log.Trim(1, time.Time{}); return err },
		"Delete":  log.Delete,
	}
}

func logFencesOpen(t testing.TB, open func(testing.TB) backend.Logs) error {
	logs := open(t)
	current := openLog(logs, "s", 5, 7)
	if current.err != nil {
		return current.err
	}
	if old := openLog(logs, "s", 4, 7); !errors.Is(old.err, backend.ErrStale) {
		return fmt.Errorf("opened in an earlier term: %v", old.err)
	}
	return errors.Join(current.Append(0, entries(1)), has(current, 1))
}

func logTrims(t testing.TB, open func(testing.TB) backend.Logs) error {
	logs := open(t)
	o := openLog(logs, "s", 1, 7)
	if o.err != nil {
		return o.err
	}
	const count = 64
	for n := range uint64(count) {
		large := backend.Entry{Number: n + 1, Body: bytes.Repeat([]byte("x"), trimBytes/16)}
		if err := o.Append(n, []backend.Entry{large}); err != nil {
			return err
		}
	}
	trimmed, err := o.Trim(trimBytes, time.Time{})
	if err != nil || trimmed == 0 || trimmed >= count || trimmed != o.Trimmed() || o.Size() > 2*trimBytes ||
		o.Last() != count {
		return fmt.Errorf("entries through %d of %d are trimmed, %d bytes stay: %v", trimmed, o.Last(), o.Size(), err)
	}
	next := trimmed
	err = o.Read(0, func(n uint64, _ []byte) bool { next++; return n == next })
	if err != nil || next != count {
		return fmt.Errorf("behind the trimmed entries reading comes to %d: %v", next, err)
	}
	return nil
}

func logReplaces(t testing.TB, open func(testing.TB) backend.Logs) error {
	logs := open(t)
	o, err := begun(logs, "s", 1, 2, 3)
	if err != nil {
		return err
	}
	if err := o.Replace(7, entries(1)); err == nil {
		return errors.New("replacing accepts an epoch that is not later")
	}
	if err := o.Replace(8, append(entries(1), backend.Entry{Mark: true, Body: []byte("m")})); err != nil {
		return err
	}
	if err := errors.Join(has(o, 1), o.Append(1, entries(2))); err != nil || o.Epoch() != 8 {
		return fmt.Errorf("replaced, in epoch %d: %v", o.Epoch(), err)
	}
	again := openLog(logs, "s", 2, 9)
	if again.err != nil || again.Epoch() != 8 || string(again.found.Mark) != "m" ||
		!slices.Equal(again.had, []uint64{1, 2}) {
		return fmt.Errorf("opened again it has %d with mark %q: %v", again.had, again.found.Mark, again.err)
	}
	return nil
}

func logDeletes(t testing.TB, open func(testing.TB) backend.Logs) error {
	logs := open(t)
	o, err := begun(logs, "s", 1)
	if err != nil {
		return err
	}
	if err := o.Delete(); err != nil {
		return err
	}
	again := openLog(logs, "s", 2, 9)
	if again.err != nil || len(again.had) > 0 || again.Epoch() != 9 || again.Size() != 0 {
		return fmt.Errorf("a deleted log has %d in epoch %d: %v", again.had, again.Epoch(), again.err)
	}
	if err := o.Append(1, entries(2)); !errors.Is(err, backend.ErrStale) {
		return fmt.Errorf("appending to a deleted log returns %v", err)
	}
	return errors.Join(again.Append(0, entries(1)), has(again, 1))
}

func logSessions(t testing.TB, open func(testing.TB) backend.Logs) error {
	logs := open(t)
	a, err := begun(logs, "a", 1)
	if err != nil {
		return err
	}
	b := openLog(logs, "b", 9, 8)
	if b.err != nil {
		return b.err
	}
	return errors.Join(b.Append(0, entries(3)), a.Append(1, entries(2)), has(a, 1, 2), has(b, 3), b.Delete(),
		has(a, 1, 2))
}
