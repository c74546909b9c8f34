package segment_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// One damaged frame costs its own entry: those behind it in the same file are read.
func TestEntriesBehindDamage(t *testing.T) {
	t.Parallel()
	fsys := &faultfs.FS{}
	o := segment.Options{FS: fsys}
	l, _, _ := open(t, o)
	must(t, l.Append(entries(1, 9)))
	data := fsys.Content(fsys.Names()[0])
	data[bytes.Index(data, body(5))] ^= 1
	_, found, have := open(t, o)
	want := append(upTo(1, 4), upTo(6, 9)...)
	if !slices.Equal(have, want) || !slices.Equal(found.Holes, []segment.Hole{{After: 4, Through: 5}}) ||
		found.Cut != 0 {
		t.Errorf("found %v with %+v, want %v", have, found, want)
	}
}

// An older epoch that a crash kept goes only if the newer one is whole; else it is put aside.
func TestOlderEpochOutlivesDamage(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]byte{"whole": 0, "damaged": 1} {
		fsys := &faultfs.FS{}
		o := segment.Options{FS: fsys}
		l, _, _ := open(t, o)
		must(t, l.Append(entries(1, 3)))
		old := fsys.Names()[0]
		kept := slices.Clone(fsys.Content(old))
		must(t, l.Replace(9, entries(1, 5)))
		fsys.Put(old, kept)
		newer := fsys.Names()[1]
		data := fsys.Content(newer)
		data[bytes.Index(data, body(2))] ^= harm
		_, found, _ := open(t, o)
		names := fsys.Names()
		aside := slices.ContainsFunc(names,
			func(n string) bool { return strings.HasPrefix(n, old) && strings.HasSuffix(n, ".bad") })
		if aside != (harm > 0) || slices.Contains(names, old) || len(found.SetAside) != int(harm) {
			t.Errorf("%s: %v are left, %+v", name, names, found)
		}
	}
}
