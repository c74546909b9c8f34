package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
	"github.com/copilot-grpc/copilot-grpc/internal/fsck"
)

// oldData is a data directory that a killed server has left.
const oldData = "../../../e2e/runtime/testdata/data-d377de2/data"

// jointData is one whose sessions have events and states in logs that they share.
const jointData = "../../../e2e/runtime/testdata/data-d5a270a3/data"

func TestFsckCommand(t *testing.T) {
	t.Parallel()
	damaged := t.TempDir()
	if err := os.CopyFS(damaged, os.DirFS(oldData)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(damaged, "sessions", "left", "session"), []byte("{\x1b[1m"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(damaged, "sessions", "rested", "session.tmp"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]result{
		"fsck":                        {exitUsage, "", "want DIR"},
		"fsck a b":                    {exitUsage, "", `unexpected argument "b"`},
		"fsck /nowhere":               {exitUsage, "", "no such file"},
		"fsck .":                      {exitUsage, "", "not a data directory"},
		"fsck /dev/null":              {exitUsage, "", "not a data directory, and not a regular file"},
		"fsck --help":                 {exitOK, "exit code is 0", ""},
		"fsck " + oldData:             {exitOK, "\nclean (sessions: 7, notes: 0, damage: 0, size: 57.2 KiB)\n", ""},
		"fsck " + jointData:           {exitOK, "\nclean (sessions: 8, notes: 0, damage: 0, size: ", ""},
		"fsck --json " + oldData:      {exitOK, `"locked": false`, ""},
		"fsck -o jsonl " + oldData:    {exitOK, `{"locked":false,"sessions":[`, ""},
		"fsck " + damaged:             {exitFailed, "\nDAMAGE: sessions/left/session is not a JSON object", ""},
		"fsck " + damaged + " ":       {exitFailed, "\nnote: sessions/rested/session.tmp is a file that was not finished\n", ""},
		"fsck  " + damaged:            {exitFailed, "\nDAMAGED (sessions: 7, notes: 1, damage: 1, size:", ""},
		"fsck " + damaged + " -o x":   {exitUsage, "", "want one of text"},
		"fsck " + damaged + " --json": {exitFailed, `"total": 1`, ""},
	} {
		got := run(t, nil, "", strings.Fields(args)...)
		if got.code != want.code || !strings.Contains(got.stdout, want.stdout) ||
			!strings.Contains(got.stderr, want.stderr) || strings.Contains(got.stdout, "\x1b") {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// An export is verified with the same table, JSON and exit codes as a directory.
func TestFsckOfAnExport(t *testing.T) {
	t.Parallel()
	parts := []string{"session.json", `{"create":{}}`, "journal.jsonl", `{"event":{"type":"t"}}`}
	m := archive.Manifest{Session: "s1\x1b", Epoch: 7, Seq: 9}
	for i := 0; i < len(parts); i += 2 {
		sum := sha256.Sum256([]byte(parts[i+1]))
		m.Parts = append(m.Parts, archive.Part{Name: parts[i], Size: int64(len(parts[i+1])), SHA256: hex.EncodeToString(sum[:])})
	}
	var out bytes.Buffer
	w, err := archive.NewWriter(&out, m)
	for i := 0; i < len(parts) && err == nil; i += 2 {
		err = w.Add(parts[i], strings.NewReader(parts[i+1]))
	}
	if err == nil {
		err = w.Close()
	}
	whole, cut := filepath.Join(t.TempDir(), "s1.tar.gz"), filepath.Join(t.TempDir(), "cut.tar.gz")
	err = errors.Join(err, os.WriteFile(whole, out.Bytes(), 0o600), os.WriteFile(cut, out.Bytes()[:out.Len()-9], 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]result{
		"fsck " + whole:             {exitOK, "7      1       0      9              yes     0        0", ""},
		"fsck  " + whole:            {exitOK, "\nclean (sessions: 1, notes: 0, damage: 0, size: ", ""},
		"fsck --json " + whole:      {exitOK, `"folder": "s1.tar.gz"`, ""},
		"fsck " + cut:               {exitFailed, "\nDAMAGE: cut.tar.gz cannot be read to its end: ", ""},
		"fsck  " + cut:              {exitFailed, "\nDAMAGED (sessions: 1, notes: 0, damage: ", ""},
		"fsck -o jsonl " + cut:      {exitFailed, `"closed":false`, ""},
		"fsck " + whole + " " + cut: {exitUsage, "", "unexpected argument"},
	} {
		got := run(t, nil, "", strings.Fields(args)...)
		if got.code != want.code || !strings.Contains(got.stdout, want.stdout) ||
			!strings.Contains(got.stderr, want.stderr) || strings.Contains(got.stdout, "\x1b") {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

func TestFsckTable(t *testing.T) {
	t.Parallel()
	got := run(t, nil, "", "fsck", oldData)
	const row = "Keyed    1795331768688  1       1      1              no      0        0       1317\n"
	if !strings.Contains(got.stdout, "MISSING  CLOSED  PROMPTS") || !strings.Contains(got.stdout, row) {
		t.Errorf("%s", got.stdout)
	}
	if got := rangesText([]fsck.Range{{First: 1, Last: 2}}, []fsck.Range{{First: 1, Last: 2}, {First: 5, Last: 5}}); got != "1-2,5-5" {
		t.Errorf("ranges are %q", got)
	}
	var report fsck.Report
	if err := json.Unmarshal([]byte(run(t, nil, "", "fsck", oldData, "--json").stdout), &report); err != nil ||
		len(report.Sessions) != 7 || report.Sessions[1].Key != "Keyed" || report.Sessions[1].Folder != "sessions/keyed=6b2553a1" {
		t.Errorf("%+v, %v", report, err)
	}
}
