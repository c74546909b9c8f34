package session

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// TestSessionsPruned deletes the sessions of a server that were last used long ago, and neither later ones nor those of
// another server on the same home, which stands for a person at a terminal.
func TestSessionsPruned(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	d := harness.NewDaemon(st)
	home := filepath.Join(d.Root, "home")
	terminal := harness.NewDaemon(st, "--home", home)
	old, recent, theirs := opened(d), opened(d), opened(terminal)
	terminal.Stop(syscall.SIGTERM)
	d.Stop(syscall.SIGTERM)
	folder := func(id string) string { return filepath.Join(home, "session-state", id) }
	for _, id := range []string{old, theirs} {
		age(t, folder(id))
	}
	d.Start()
	path, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	prune := func(want string, flags ...string) {
		t.Helper()
		args := append([]string{"sessions", "prune", "--idle", "1h", "--target", "unix:" + filepath.Join(d.Root, "s")}, flags...)
		if out, err := exec.CommandContext(d.Ctx, path, args...).CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("prune %q: %v, %q, want %q", flags, err, out, want)
		}
	}
	listed := func(want ...string) {
		t.Helper()
		var got []string
		for s, err := range d.Client.ListSessions(d.Ctx, copilot.ListOptions{IncludeHistory: true}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, s.ID)
		}
		slices.Sort(want)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("sessions %q are listed, want %q", got, want)
		}
	}
	prune(old+"\n", "--dry-run")
	listed(old, recent, theirs)
	prune(old + "\n")
	listed(recent, theirs)
	prune("")
	if _, err := os.Stat(folder(old)); err == nil {
		t.Error("the CLI still has the history of the deleted session")
	}
}

// age makes what the CLI has of a session two hours older.
func age(t *testing.T, folder string) {
	t.Helper()
	ago := time.Now().Add(-2 * time.Hour)
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, ago, ago)
	})
	if err != nil {
		t.Fatal(err)
	}
}
