package bridge

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// keptLife is a rig with a data directory.
type keptLife struct {
	*lives
	data      string
	directory *store.Store
	script    func(life int) fakecli.Script
	change    []func(*Config)
}

// newKept makes a bridge with an empty data directory.
func newKept(t *testing.T, script func(life int) fakecli.Script, change ...func(*Config)) *keptLife {
	t.Helper()
	return openKept(t, t.TempDir(), t.TempDir(), script, change...)
}

func openKept(t *testing.T, data, home string, script func(life int) fakecli.Script, change ...func(*Config)) *keptLife {
	t.Helper()
	k := &keptLife{data: data, script: script, change: change}
	var err error
	if k.directory, err = store.Open(store.Config{Dir: data, Journals: journal.WriterConfig{}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.directory.Close() }) // after the bridge
	k.lives = newLivesAt(t, home, script, append([]func(*Config){func(c *Config) { c.Directory = k.directory }}, change...)...)
	return k
}

// reborn is the next life of a bridge that is killed now: what is on disk is as it is at
// this moment, and the runtimes are gone.
func (k *keptLife) reborn(change ...func(*Config)) *keptLife {
	k.t.Helper()
	data := filepath.Join(k.t.TempDir(), "data")
	k.copyTo(data)
	k.Drain(0) // what was killed loads nothing again
	if k.count() > 0 {
		k.life().Kill()
	}
	return openKept(k.t, data, k.home, k.script, append(change, k.change...)...)
}

// copyTo copies the data directory as it is, files that come and go meanwhile aside.
func (k *keptLife) copyTo(data string) {
	k.t.Helper()
	err := filepath.WalkDir(k.data, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		to := filepath.Join(data, strings.TrimPrefix(path, k.data))
		if e.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o600)
	})
	if err != nil {
		k.t.Fatal(err)
	}
}

// promptsNoted waits until the disk has that the turns of all of a session's prompts have ended.
func (k *keptLife) promptsNoted(id string) {
	k.t.Helper()
	eventually(k.t, "the note that the prompts' turns have ended", func() bool {
		box, err := outbox.Open(k.directory.Outbox(id))
		return err == nil && box.Empty()
	})
}

// ended is every TurnEnded of a stream until it has caught up.
func (s *reading) ended() (out []*bridgev1.TurnEnded, last *bridgev1.Position) {
	s.t.Helper()
	s.frame("the end of the replay", func(f *bridgev1.SubscribeResponse) bool {
		if f.GetTurnEnded() != nil {
			out = append(out, f.GetTurnEnded())
		}
		last = f.GetResumeAfter()
		return f.GetCaughtUp() != nil
	})
	return out, last
}
