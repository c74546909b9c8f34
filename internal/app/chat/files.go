package chat

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// maxFiles bounds each list of files: the changes of a working directory can be thousands.
const maxFiles = 100

func filesText(diff *cliv1.SessionWorkspacesServiceDiffResponse, kept []string) string {
	head, none := "Changed with the agent's file tools:", "The agent's file tools have changed nothing."
	switch {
	case diff.GetUnavailableReason() ==
		cliv1.HistoryRewindUnavailableReason_HISTORY_REWIND_UNAVAILABLE_REASON_SESSION_BUSY:
		none = "The changes of the session can be listed when its turn has ended."
	case diff.GetMode() != cliv1.WorkspaceDiffMode_WORKSPACE_DIFF_MODE_SESSION:
		head = "Changes that are not committed (the session does not record its own):"
		none = "No change waits for a commit, and the session does not record its own changes."
	}
	var changed, own []string
	for _, c := range diff.GetChanges() {
		changed = append(changed, changeText(c))
	}
	for _, name := range kept {
		own = append(own, "  "+name)
	}
	return listed(head, changed, none) + listed("\nKept with the session:", own, "")
}

// listed is a list under its head, or a text if it is empty.
func listed(head string, lines []string, none string) string {
	if len(lines) == 0 {
		return none
	}
	if more := len(lines) - maxFiles; more > 0 {
		lines = append(lines[:maxFiles:maxFiles], fmt.Sprintf("  … and %d more", more))
	}
	return head + "\n" + strings.Join(lines, "\n")
}

// changeText is a change of a file: what was done, its path, and how many lines were added and removed.
func changeText(c *cliv1.WorkspaceDiffFileChange) string {
	done := strings.ToLower(strings.TrimPrefix(c.GetChangeType().String(), "WORKSPACE_DIFF_FILE_CHANGE_TYPE_"))
	path := c.GetPath()
	if old := c.GetOldPath(); old != "" && old != path {
		path = old + " → " + path
	}
	_, hunks, _ := strings.Cut(c.GetDiff(), "\n@@")
	added, removed := strings.Count(hunks, "\n+"), strings.Count(hunks, "\n-")
	counts := fmt.Sprintf("+%d -%d", added, removed)
	if c.GetIsTruncated() {
		counts += " or more"
	}
	return fmt.Sprintf("  %-8s  %s  %s", done, path, counts)
}

// inHome is a path in which "~/" is the person's home, as in a shell.
func inHome(path string) string {
	if rest, found := strings.CutPrefix(path, "~/"); found {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

// FileSize is the size of a file that can be attached. Directories, pipes and devices cannot.
func FileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%q is no file", path)
	}
	if err != nil {
		return 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), f.Close()
}
