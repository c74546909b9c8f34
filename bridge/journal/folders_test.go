package journal

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend/backendtest"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/joint"
)

// joiningLogs are folders whose logs append to the joint log what can be there.
type joiningLogs struct{ *Folders }

type joiningLog struct{ *ownedLog }

func (l joiningLogs) Open(
	session string, term, epoch uint64, visit func(uint64, []byte) error,
) (backend.Log, backend.Recovered, error) {
	log, found, err := l.Folders.Open(session, term, epoch, visit)
	if err != nil {
		return nil, found, err
	}
	return joiningLog{log.(*ownedLog)}, found, nil
}

func (l joiningLog) Append(last uint64, entries []backend.Entry) error {
	marked := slices.ContainsFunc(entries, func(e backend.Entry) bool { return e.Mark })
	if marked || l.Full() || l.Size() == 0 {
		return l.ownedLog.Append(last, entries)
	}
	if err := l.term.hold(l.number); err != nil {
		return err
	}
	defer l.term.release()
	if err := l.endsWith(last); err != nil {
		return err
	}
	return l.logs.joint.Append([]joint.Part{{Member: l.Member, Entries: entries}})
}

func TestFolders(t *testing.T) {
	t.Parallel()
	backendtest.Logs(t, func(t testing.TB) backend.Logs {
		w, dir := NewWriter(WriterConfig{SegmentBytes: minSegmentBytes}), t.TempDir()
		logs, err := OpenFolders(w, filepath.Join(dir, "joint"), func(session string) string {
			return filepath.Join(dir, session)
		})
		if err != nil {
			t.Fatal(err)
		}
		logs.Start(nil)
		t.Cleanup(func() {
			w.Close()
			if err := logs.Close(); err != nil {
				t.Error(err)
			}
		})
		return joiningLogs{logs}
	})
}
