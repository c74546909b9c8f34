package segment_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// spoil returns a log with entries 1 to 9, of which the bytes from one entry to the end of another are zero. A mark
// follows entry 5.
func spoil(t *testing.T, from, to uint64) *faultfs.FS {
	t.Helper()
	fs := &faultfs.FS{}
	l, _, _ := open(t, segment.Options{FS: fs})
	must(t, l.Append(entries(1, 5)))
	must(t, l.Append(append([]segment.Entry{{Mark: true, Body: []byte("mark")}}, entries(6, 9)...)))
	content := fs.Content(fs.Names()[0])
	begin, last := bytes.Index(content, body(from)), bytes.Index(content, body(to))
	clear(content[begin : last+len(body(to))])
	return fs.Tear(len(content), func() bool { return true })
}

// copies returns copies of entries as Options.Copies does. Copies of the entries before them are missing.
func copies(numbers ...uint64) func(epoch, after, before uint64) []segment.Copy {
	return func(_, after, before uint64) (out []segment.Copy) {
		for _, n := range numbers {
			if after < n && n < before {
				out = append(out, segment.Copy{Entry: segment.Entry{Number: n, Body: body(n)}, Prev: n - 1})
			}
		}
		return out
	}
}

// Copies take the place of damaged entries. What has no copy is missing, at every later Open too.
func TestCopiesReplaceDamagedEntries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to uint64
		copies   []uint64
		missing  []segment.Hole
		skipped  bool
	}{
		{2, 4, upTo(1, 9), nil, false},
		{1, 1, upTo(1, 1), nil, false},
		{2, 4, upTo(2, 3), []segment.Hole{{After: 3, Through: 4}}, true},
		{2, 4, []uint64{2, 4}, []segment.Hole{{After: 2, Through: 3}}, true},
		{2, 4, []uint64{3}, []segment.Hole{{After: 1, Through: 2}, {After: 3, Through: 4}}, true},
		{4, 7, upTo(4, 5), []segment.Hole{{After: 5, Through: 7}}, true},
		{4, 7, upTo(4, 9), nil, true}, // the mark is lost
		{4, 7, nil, []segment.Hole{{After: 3, Through: 7}}, true},
	} {
		t.Run(fmt.Sprint(c.from, " to ", c.to, " with ", c.copies), func(t *testing.T) {
			t.Parallel()
			fs := spoil(t, c.from, c.to)
			for _, source := range []func(_, _, _ uint64) []segment.Copy{copies(c.copies...), nil} {
				l, found, have := open(t, segment.Options{FS: fs, Copies: source})
				want := upTo(1, 9)
				for _, h := range c.missing {
					want = slices.DeleteFunc(want, func(n uint64) bool { return h.After < n && n <= h.Through })
				}
				// An entry that is there is no longer missing, and nothing else in its place is.
				if !slices.Equal(have, want) || !slices.Equal(found.Holes, c.missing) {
					t.Errorf("has %v and misses %v, want %v and %v", have, found.Holes, want, c.missing)
				}
				if found.Skipped > 0 != c.skipped || found.Unsure != (c.skipped && c.to > 5) {
					t.Errorf("skipped %d bytes, unsure of the mark: %v", found.Skipped, found.Unsure)
				}
				if read := readHoles(t, l, c.missing); !slices.Equal(read, want) {
					t.Errorf("read %v, want %v", read, want)
				}
			}
		})
	}
}

// A crash while copies are written leaves what the next Open mends.
func TestCrashWhileCopiesAreWritten(t *testing.T) {
	t.Parallel()
	for crash := range 4 {
		for _, power := range []bool{false, true} {
			fs := spoil(t, 2, 4)
			fs.CrashAfter(crash)
			o := segment.Options{FS: fs, SyncFiles: true, Copies: copies(upTo(1, 9)...)}
			if l, _, err := segment.Open(dir, 7, o, func(uint64, []byte) error { return nil }); err == nil {
				if _, err := l.Sync(); err == nil {
					o.Copies = nil // they are not needed any more
				}
			}
			o.FS = fs.Restart(power)
			if _, found, have := open(t, o); !slices.Equal(have, upTo(1, 9)) || found.Damaged() {
				t.Errorf("crash at %d, power %v: has %v; found %+v", crash, power, have, found)
			}
		}
	}
}

// Copies of another epoch, or of another log with the same name, are not of these entries.
func TestCopiesOfAnotherLog(t *testing.T) {
	t.Parallel()
	foreign := func(_, after, _ uint64) []segment.Copy {
		return []segment.Copy{{Entry: segment.Entry{Number: after + 1, Body: body(after + 1)}, Prev: after - 1}}
	}
	_, found, have := open(t, segment.Options{FS: spoil(t, 2, 4), Copies: foreign})
	if len(have) != 6 || !found.Damaged() {
		t.Errorf("has %v; found %+v", have, found)
	}
}
