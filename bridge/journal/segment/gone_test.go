package segment_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// A sync of a removed log does not create the log again: another log may own its directory.
func TestSyncOfWhatIsGone(t *testing.T) {
	t.Parallel()
	fsys := rooted{segment.OS{}, t.TempDir()}
	l, _, _ := open(t, segment.Options{FS: fsys, SyncFiles: true})
	must(t, l.Append(entries(1, 3)))
	must(t, l.Rest())
	if _, err := l.Sync(); err != nil {
		t.Fatalf("a log that rests is not synced: %v", err)
	}
	must(t, l.Append(entries(4, 5)))
	must(t, l.Rest())
	must(t, fsys.RemoveAll(dir))
	must(t, fsys.MkdirAll(dir))
	if _, err := l.Sync(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the sync says %v", err)
	}
	left, err := fsys.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
}
