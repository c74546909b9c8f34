// Package fileperm reports files and directories that the server trusts and that other users of the machine can read
// or replace. It checks modes and owners only, and ignores access control lists and containers. It has no state.
package fileperm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Kind says what a path is trusted with.
type Kind int

// The kinds of paths.
const (
	// Trusted is a file that determines rights: a user that can write it has all rights.
	Trusted Kind = iota
	// Secret is a file that no other user may read either.
	Secret
	// Private is a directory of the server's own data.
	Private
	// Socket is a unix socket that will be created: a user that can make it, or replace a directory on the way to it,
	// can take its place.
	Socket
)

// Finding is one way in which others can get at a path.
type Finding struct {
	// Path is the file, or the directory on the way to it, that is open to others.
	Path string
	// Text says what others can do, Remedy the command that ends it.
	Text, Remedy string
	// Grave says that any user of the machine can change what the server trusts: the server
	// does not start with it. Otherwise it warns.
	Grave bool
}

func (f Finding) Error() string {
	return fmt.Sprintf("%q %s; fix it with: %s", f.Path, f.Text, f.Remedy)
}

// The permission bits of others, and of the group.
const (
	othersWrite fs.FileMode = 0o002
	groupWrite  fs.FileMode = 0o020
	othersRead  fs.FileMode = 0o004
	groupRead   fs.FileMode = 0o040
)

// Check returns how others can get at a path. A path that does not exist has only its
// directories looked at. On systems without these modes it finds nothing.
func Check(path string, kind Kind) ([]Finding, error) {
	if !supported {
		return nil, nil
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	var found []Finding
	if kind != Socket {
		if found, err = checkSelf(path, kind); err != nil {
			return nil, err
		}
	}
	// Links are followed: the directories on both ways count.
	entries := way(path)
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		entries = append(entries, way(real)...)
	}
	reported := map[string]bool{}
	for _, entry := range entries {
		dir := filepath.Dir(entry)
		if reported[dir] {
			continue
		}
		f, err := checkDirectory(dir, entry, kind)
		if err != nil {
			return nil, err
		}
		found = append(found, f...)
		reported[dir] = len(f) > 0
	}
	return found, nil
}

// way returns a path and the directories that lead to it, the nearest first, without the root.
func way(path string) (entries []string) {
	for ; path != filepath.Dir(path); path = filepath.Dir(path) {
		entries = append(entries, path)
	}
	return entries
}

func checkSelf(path string, kind Kind) (found []Finding, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	mode, fixed := info.Mode(), readOnly(path)
	add := func(grave bool, text, change string) {
		found = append(found,
			Finding{Path: path, Text: text, Remedy: fmt.Sprintf("chmod %s %q", change, path), Grave: grave})
	}
	switch {
	case fixed:
	case mode&othersWrite != 0:
		add(true, "can be written by every user of this machine", "o-w")
	case mode&groupWrite != 0:
		add(false, "can be written by its group", "g-w")
	}
	switch {
	case kind == Trusted:
	case mode&othersRead != 0:
		add(false, "can be read by every user of this machine", "go-rwx")
	case mode&groupRead != 0:
		add(false, "can be read by its group", "go-rwx")
	}
	if !fixed && foreign(info) {
		found = append(found, Finding{
			Path: path, Text: "belongs to another user, who can change it",
			Remedy: fmt.Sprintf("chown %d %q", os.Geteuid(), path),
		})
	}
	return found, nil
}

// checkDirectory looks at a directory on the way to a path, and at the next entry on that way. Others can replace
// what is in a directory that they can write, unless it is sticky.
func checkDirectory(dir, entry string, kind Kind) ([]Finding, error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	mode := info.Mode()
	sticky := mode&fs.ModeSticky != 0
	switch {
	case mode&othersWrite == 0 || readOnly(dir):
		return nil, nil
	case kind == Socket && (!sticky || foreign(info) || !taken(entry)):
		return []Finding{{
			Path: dir, Text: "can be written by every user of this machine, who can make a socket of that name first",
			Remedy: "choose a directory of your own, such as $XDG_RUNTIME_DIR",
		}}, nil
	case sticky:
		return nil, nil
	}
	return []Finding{{
		Path: dir, Text: "can be written by every user of this machine, who can replace what is in it",
		Remedy: fmt.Sprintf("chmod o-w %q", dir), Grave: true,
	}}, nil
}

// taken reports whether a directory on the way to a socket, or a link to one, exists and belongs to this process's user
// or root: in a sticky directory no other user can replace it. The socket itself never counts, since the server removes
// it.
func taken(entry string) bool {
	info, err := os.Lstat(entry)
	return err == nil && info.Mode()&(fs.ModeDir|fs.ModeSymlink) != 0 && !foreign(info)
}
