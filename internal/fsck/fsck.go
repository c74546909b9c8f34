// Package fsck verifies a data directory against docs/data-directory.md, and the export of a session against
// docs/session-archive.md. It shares no code with the packages that write them, so that a mistake of theirs is not
// repeated here; names of files and constants below are those of the pages.
//
// Check changes nothing, follows no link out of the directory, and needs bounded memory: segments and exports are read
// in pieces, and what is remembered of all events together has limits. An attacker may have written the files.
package fsck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/gofrs/flock"
)

const (
	// maxNames bounds the files of a directory that are looked at.
	maxNames = 1 << 20
	// maxFindings bounds the findings of a kind that a Report lists.
	maxFindings = 1000
	// maxFindingText bounds the text of a finding, in bytes.
	maxFindingText = 500
	// maxText bounds a file that is read whole: a prompt has at most 192 MiB.
	maxText = 256 << 20
)

// Report is what Check found.
type Report struct {
	// Locked reports that a server uses the directory: some findings may be writes that were not finished.
	Locked   bool      `json:"locked"`
	Sessions []Session `json:"sessions"`
	// Damage is content that differs from what a server wrote. Notes are what a crash or a repair leaves.
	Damage List  `json:"damage"`
	Notes  List  `json:"notes"`
	Bytes  int64 `json:"bytes"`
}

// Session is what the directory has of a session, or what its export has.
type Session struct {
	// Key is the session's id, or TENANT.ID; empty if it cannot be read.
	Key string `json:"session"`
	// Folder is the session's folder in the directory, or the name of the file with its export.
	Folder string `json:"folder"`
	// Epoch is that of the journal. First and Last are the numbers of its first and last event, 0 without one. An export
	// has only Last.
	Epoch  uint64 `json:"epoch"`
	First  uint64 `json:"first"`
	Last   uint64 `json:"last"`
	Events int    `json:"events"`
	// Closed reports that the journal was closed in order, or that the export has its end.
	Closed bool `json:"closed"`
	// Holes are ranges in which events are missing, Losses those that the journal itself names.
	Holes  []Range `json:"holes,omitempty"`
	Losses []Range `json:"losses,omitempty"`
	// Prompts is the number of acknowledged prompts whose turns have not ended.
	Prompts int   `json:"prompts"`
	Damage  int   `json:"damage"`
	Bytes   int64 `json:"bytes"`
}

// Range are the numbers from First to Last.
type Range struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// Finding is one thing that was found.
type Finding struct {
	// Path is a file or folder in the directory or in the export, or the export.
	Path string `json:"path"`
	Text string `json:"text"`
}

// List are findings.
type List struct {
	// Total counts also the findings that are not listed.
	Total int       `json:"total"`
	List  []Finding `json:"list,omitempty"`
}

func (l *List) add(path, format string, values ...any) {
	if l.Total++; l.Total > maxFindings {
		return
	}
	text := fmt.Sprintf(format, values...)
	l.List = append(l.List, Finding{path, strings.ToValidUTF8(text[:min(len(text), maxFindingText)], "")})
}

var (
	// ErrNoDirectory reports a path that is no data directory.
	ErrNoDirectory = errors.New("not a data directory")
	// ErrLater reports a later format, of which this version cannot say what is damaged.
	ErrLater = errors.New("of a later version")
)

// knownFormat is the greatest format of a directory that the page describes.
const knownFormat = 2

// place is a part of a file.
type place struct {
	file     string
	from, to int64
}

// checker collects a Report.
type checker struct {
	Report

	ctx  context.Context //nolint:containedctx // that of the call of Check
	root *os.Root
	// epoch is the content of the cell of that name, if epochKnown is set.
	epoch      uint64
	epochKnown bool
	joint      joint
	states     map[keyDigest]bool  // the sessions of which a log has a state
	outboxes   map[keyDigest]place // where journals/ has the outbox of a session
}

// Check verifies a data directory, or a file with the export of a session. The error is ErrNoDirectory, ErrLater, that of
// opening the directory or the file, or that of ctx.
func Check(ctx context.Context, dir string) (*Report, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%q is %w, and not a regular file", dir, ErrNoDirectory)
		}
		return checkExport(ctx, dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	if info, err := root.Lstat("sessions"); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%q is %w: it has no folder sessions", dir, ErrNoDirectory)
	}
	c := &checker{
		Report: Report{Sessions: []Session{}}, ctx: ctx, root: root,
		joint: joint{events: map[keyDigest][]jointEvent{}}, states: map[keyDigest]bool{},
		outboxes: map[keyDigest]place{},
	}
	c.Locked = locked(root, dir)
	if format, _ := c.cell("format"); format > knownFormat {
		return nil, fmt.Errorf("%q is %w: its format is %d, later than %d", dir, ErrLater, format, knownFormat)
	}
	c.top()
	if c.epoch, c.epochKnown = c.cell("epoch"); !c.epochKnown {
		c.Damage.add("epoch", "is missing or has no number")
	}
	c.cell("overruns")
	c.cell("journals.doubts")
	// The logs come before the folders to which their content moves while a server runs.
	c.log("journals", &jointLog{c: c})
	c.log("states", &statesLog{c: c})
	c.log("requests", &requestsLog{c: c})
	for _, name := range c.folders("sessions") {
		if place := path.Join("sessions", name); strings.HasSuffix(name, "~removed") {
			c.Notes.add(place, "is a session whose deletion was not finished")
		} else {
			c.session(place)
		}
	}
	for _, name := range c.folders("damaged") {
		place := path.Join("damaged", name)
		c.Damage.add(place, "was set aside: %s", c.reason(place))
		c.session(place)
	}
	c.usage()
	return &c.Report, ctx.Err()
}

// locked reports whether a server holds the lock. A server that starts meanwhile tries again.
func locked(root *os.Root, dir string) bool {
	if info, err := root.Lstat("lock"); err != nil || !info.Mode().IsRegular() {
		return false
	}
	lock := flock.New(filepath.Join(dir, "lock"), flock.SetFlag(os.O_RDONLY))
	free, err := lock.TryRLock()
	_ = lock.Close()
	return err == nil && !free
}

// top looks for files that are not those of a data directory.
func (c *checker) top() {
	known := []string{"lock", "format", "epoch", "overruns", "sessions", "states", "journals", "journals.doubts", "requests",
		"usage", "damaged", "logins.json", "nats"}
	for _, e := range c.list(".") {
		if !slices.Contains(known, e.Name()) {
			c.other(e.Name())
		}
	}
}

// other notes a file that no part of the format is.
func (c *checker) other(name string) {
	switch {
	case strings.HasSuffix(name, ".tmp"):
		c.Notes.add(name, "is a file that was not finished")
	case strings.HasSuffix(name, ".bad") || strings.HasSuffix(name, ".damaged"):
		c.Damage.add(name, "was set aside")
	default:
		c.Notes.add(name, "is not a file of a data directory")
	}
}

// list returns the files of a directory, by name; none if it is missing.
func (c *checker) list(name string) []fs.DirEntry {
	info, err := c.root.Lstat(name)
	if err == nil && !info.IsDir() { // opening a pipe would wait
		err = errors.New("it is not a directory")
	}
	var f *os.File
	if err == nil {
		f, err = c.root.Open(name)
	}
	if err != nil {
		c.unread(name, err)
		return nil
	}
	defer func() { _ = f.Close() }()
	entries, err := f.ReadDir(maxNames)
	if err != nil && err != io.EOF {
		c.unread(name, err)
	}
	if len(entries) == maxNames {
		c.Damage.add(name, "has more than %d files; only these were looked at", maxNames-1)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries
}

// folders returns the folders in a directory.
func (c *checker) folders(name string) (names []string) {
	for _, e := range c.list(name) {
		if e.IsDir() {
			names = append(names, e.Name())
		} else {
			c.other(path.Join(name, e.Name()))
		}
	}
	return names
}

// unread reports a file that cannot be read. A missing one is not reported: its absence has a meaning, or a running
// server has removed it.
func (c *checker) unread(name string, err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		c.Damage.add(name, "cannot be read: %v", err)
	}
}

// open opens a regular file, and returns its size.
func (c *checker) open(name string) (*os.File, int64, error) {
	info, err := c.root.Lstat(name)
	if c.ctx.Err() != nil {
		err = c.ctx.Err()
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := c.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	c.Bytes += info.Size()
	return f, info.Size(), nil
}

// read reads a file of at most limit bytes.
func (c *checker) read(name string, limit int64) ([]byte, error) {
	f, size, err := c.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if size > limit {
		return nil, fmt.Errorf("it has %d bytes, more than %d", size, limit)
	}
	text := make([]byte, size)
	n, err := f.ReadAt(text, 0)
	if n < len(text) {
		return nil, err
	}
	return text, nil
}
