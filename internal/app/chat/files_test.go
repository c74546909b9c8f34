package chat

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

func TestFilesText(t *testing.T) {
	t.Parallel()
	const (
		session  = cliv1.WorkspaceDiffMode_WORKSPACE_DIFF_MODE_SESSION
		unstaged = cliv1.WorkspaceDiffMode_WORKSPACE_DIFF_MODE_UNSTAGED
	)
	changed := []*cliv1.WorkspaceDiffFileChange{
		{Path: "a.go", ChangeType: cliv1.WorkspaceDiffFileChangeType_WORKSPACE_DIFF_FILE_CHANGE_TYPE_ADDED,
			Diff: "diff --git a/a.go b/a.go\n--- /dev/null\n+++ b/a.go\n@@ -0,0 +1,2 @@\n+++ one\n+two"},
		{Path: "c.go", OldPath: proto.String("b.go"), IsTruncated: proto.Bool(true),
			ChangeType: cliv1.WorkspaceDiffFileChangeType_WORKSPACE_DIFF_FILE_CHANGE_TYPE_RENAMED,
			Diff:       "--- a/b.go\n+++ b/c.go\n@@ -1,2 +1,2 @@\n-- one\n+1\n same\n@@ -9 +9 @@\n-nine"},
	}
	for name, tc := range map[string]struct {
		mode    cliv1.WorkspaceDiffMode
		changes []*cliv1.WorkspaceDiffFileChange
		kept    []string
		want    string
	}{
		"none": {session, nil, nil, "The agent's file tools have changed nothing."},
		"none that is known": {unstaged, nil, nil,
			"No change waits for a commit, and the session does not record its own changes."},
		"changed": {session, changed, nil, "Changed with the agent's file tools:\n  added     a.go  +2 -0\n" +
			"  renamed   b.go → c.go  +1 -2 or more"},
		"not recorded": {unstaged, changed[:1], nil,
			"Changes that are not committed (the session does not record its own):\n  added     a.go  +2 -0"},
		"kept": {session, nil, []string{"plan.md"},
			"The agent's file tools have changed nothing.\nKept with the session:\n  plan.md"},
	} {
		diff := &cliv1.SessionWorkspacesServiceDiffResponse{Mode: tc.mode, Changes: tc.changes}
		if got := filesText(diff, tc.kept); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	busy := &cliv1.SessionWorkspacesServiceDiffResponse{Mode: session, IsFallback: true,
		UnavailableReason: cliv1.HistoryRewindUnavailableReason_HISTORY_REWIND_UNAVAILABLE_REASON_SESSION_BUSY}
	if got, want := filesText(busy, nil), "The changes of the session can be listed when its turn has ended."; got != want {
		t.Errorf("busy: %q, want %q", got, want)
	}
	many := filesText(&cliv1.SessionWorkspacesServiceDiffResponse{Mode: session}, make([]string, maxFiles+7))
	if lines := strings.Split(many, "\n"); len(lines) != maxFiles+3 || lines[len(lines)-1] != "  … and 7 more" {
		t.Errorf("%d lines: %s", len(lines), many)
	}
}

func TestFileSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if size, err := FileSize(path); size != 3 || err != nil {
		t.Errorf("%d, %v", size, err)
	}
	for _, other := range []string{dir, filepath.Join(dir, "none"), os.DevNull} {
		if _, err := FileSize(other); err == nil {
			t.Errorf("%s can be attached", other)
		}
	}
}

func TestInHome(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	for path, want := range map[string]string{"~/a b": filepath.Join(home, "a b"), "~b/c": "~b/c", "/a/~/b": "/a/~/b"} {
		if got := inHome(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
