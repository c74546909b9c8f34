package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
)

// Doctor tells whether directories can be used, and leaves nothing in them.
func TestDoctorTellsOfDirectories(t *testing.T) {
	t.Parallel()
	dir, used := shortDir(t), t.TempDir()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Config{Dir: used, Journals: journal.WriterConfig{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const look, wrong = runtime.LevelWarning, runtime.LevelError
	missing := filepath.Join(dir, "missing", "deep")
	for name, tc := range map[string]struct {
		config        Config
		subject, says string
		level         runtime.Level
	}{
		"no data":             {Config{}, "data directory", "none", runtime.LevelOK},
		"data to be":          {Config{DataDir: missing}, "data directory", "is writable", runtime.LevelOK},
		"data in a file":      {Config{DataDir: filepath.Join(file, "x")}, "data directory", "not a directory", wrong},
		"data of another":     {Config{DataDir: used}, "data directory", "another server uses", look},
		"a home to be":        {Config{Home: missing}, "home of the CLI", "is writable", runtime.LevelOK},
		"a home in a file":    {Config{UserHome: file}, "home of the CLI", "not a directory", wrong},
		"nowhere to work":     {Config{WorkDir: missing}, "working directory", "is not a directory", wrong},
		"an audit log to be":  {Config{AuditLog: filepath.Join(dir, "log")}, "audit log", "can be written", runtime.LevelOK},
		"an audit log":        {Config{AuditLog: file}, "audit log", "can be written", runtime.LevelOK},
		"no place for a log":  {Config{AuditLog: missing}, "audit log", "no such file", wrong},
		"a socket":            {Config{Listen: []string{"unix:" + filepath.Join(dir, "s")}}, "socket", "can be created", runtime.LevelOK},
		"a socket to be":      {Config{Listen: []string{"unix:" + missing}}, "socket", "can be created", runtime.LevelOK},
		"a file for a socket": {Config{Listen: []string{"unix:" + file}}, "socket", "exists and is not a socket", wrong},
		"a long path": {Config{Listen: []string{"unix:" + filepath.Join(dir, strings.Repeat("x", 120))}}, "socket",
			"invalid argument", wrong},
	} {
		found := append(tc.config.diskFindings(), tc.config.addressFindings(t.Context())...)
		f := findingOf(found, tc.subject)
		if f.Level != tc.level || !strings.Contains(f.Text, tc.says) || tc.level != runtime.LevelOK && f.Remedy == "" {
			t.Errorf("%s: doctor says %+v, want %q", name, found, tc.says)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("doctor has left %v, %v", left, err)
	}
}

// A disk with little space is a warning, a full one a fault.
func TestSpaceLevel(t *testing.T) {
	t.Parallel()
	for free, want := range map[uint64]runtime.Level{
		0: runtime.LevelError, noSpace - 1: runtime.LevelError, noSpace: runtime.LevelWarning,
		littleSpace - 1: runtime.LevelWarning, littleSpace: runtime.LevelOK,
	} {
		if level := spaceLevel(free); level != want {
			t.Errorf("%d bytes: %s, want %s", free, level, want)
		}
	}
	if free, known := freeBytes(t.TempDir()); known && free == 0 {
		t.Error("no byte is free")
	}
}
