package store

import (
	"log/slog"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// States that are saved while earlier ones are settled stay in the log.
func TestDropKeepsLaterStates(t *testing.T) {
	t.Parallel()
	fs := &faultfs.FS{}
	begin := func(fs *faultfs.FS) *stateLog {
		l := &stateLog{
			fs: fs, dir: "states", syncs: true, log: slog.New(slog.DiscardHandler),
			file: func(string, []byte, uint64) error { return nil },
		}
		if err := l.openStates(0, func(string) (uint64, error) { return 0, nil }); err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := begin(fs)
	for _, data := range []string{"1", "2"} {
		if err := l.save([]backend.State{{Key: "a", Data: []byte(data)}}); err != nil {
			t.Fatal(err)
		}
	}
	l.mu.Lock()
	err := l.drop(1)
	l.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	next := begin(fs.Restart(true))
	if text, _ := next.get("a"); string(text) != "2" {
		t.Errorf("the state is %q", text)
	}
	for _, l := range []*stateLog{l, next} {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}
}
