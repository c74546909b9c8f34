package journal

import (
	"path/filepath"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend/backendtest"
)

func TestFolders(t *testing.T) {
	t.Parallel()
	backendtest.Logs(t, func(t testing.TB) backend.Logs {
		w, dir := NewWriter(WriterConfig{SegmentBytes: minSegmentBytes}), t.TempDir()
		t.Cleanup(w.Close)
		return NewFolders(w, func(session string) string { return filepath.Join(dir, session) })
	})
}
