package clibin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Digests are cached together with the file system's metadata of the files (size, times, inode), and computed again
// only if those have changed. A process that can write to the cache directory can forge the cache: it saves time, but
// does not protect against programs of the server's user.

// settleTime is the minimum age of a change before a digest is cached: two changes within the resolution of the file
// system's clock cannot be distinguished.
const settleTime = 2 * time.Second

// maxTries bounds the reads of a file that changes while it is read.
const maxTries = 3

// fingerprint is the file system's metadata of files, and the time of their last change.
type fingerprint struct {
	text    string
	changed time.Time
}

// remembered returns the digest of path: from the cache if the fingerprint has not changed.
func (l *Locator) remembered(
	path string, look func() (fingerprint, error), compute func() (string, error),
) (string, error) {
	memory := l.memoryOf(path)
	now, err := look()
	if err != nil {
		return "", err
	}
	if text, err := os.ReadFile(memory); err == nil {
		if seen, sum, ok := strings.Cut(strings.TrimSuffix(string(text), "\n"), " "); ok && seen == now.text {
			return sum, nil
		}
	}
	for range maxTries {
		sum, err := compute()
		if err != nil {
			return "", err
		}
		again, err := look()
		if err != nil {
			return "", err
		}
		if again.text == now.text {
			if time.Since(now.changed) > settleTime && memory != "" {
				_ = writeAtomic(memory, now.text+" "+sum+"\n") // computed again next time
			}
			return sum, nil
		}
		now = again
	}
	return "", fmt.Errorf("%q changed while it was read", path)
}

// memoryOf returns the name of the file that caches the digest of path; "" without a cache directory.
func (l *Locator) memoryOf(path string) string {
	dir, err := l.Dir()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(dir, "checked", hex.EncodeToString(sum[:8]))
}

// writeAtomic writes a file atomically.
func writeAtomic(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// fileDigest returns the SHA-256 of a file.
func (l *Locator) fileDigest(ctx context.Context, path string) (string, error) {
	look := func() (fingerprint, error) {
		info, err := os.Stat(path)
		if err != nil {
			return fingerprint{}, err
		}
		text, changed := identify(info)
		return fingerprint{hash(text), changed}, nil
	}
	return l.remembered(path, look, func() (string, error) { return sumFile(ctx, path) })
}

// treeDigest returns a digest of all files below dir: of their paths, contents and execute permission. For anything
// other than regular files and folders it uses the file type.
func (l *Locator) treeDigest(ctx context.Context, dir string) (string, error) {
	look := func() (fingerprint, error) {
		var all strings.Builder
		var last time.Time
		err := walkTree(dir, func(rel, _ string, info fs.FileInfo) error {
			text, changed := identify(info)
			if changed.After(last) {
				last = changed
			}
			fmt.Fprintf(&all, "%q %s\n", rel, text)
			return nil
		})
		return fingerprint{hash(all.String()), last}, err
	}
	return l.remembered(dir, look, func() (string, error) {
		var all strings.Builder
		err := walkTree(dir, func(rel, path string, info fs.FileInfo) error {
			if !info.Mode().IsRegular() {
				fmt.Fprintf(&all, "%v %s\n", info.Mode().Type(), rel)
				return nil
			}
			sum, err := sumFile(ctx, path)
			mode := "-"
			if info.Mode()&0o111 != 0 {
				mode = "x"
			}
			fmt.Fprintf(&all, "%s %s %s\n", sum, mode, rel)
			return err
		})
		return hash(all.String()), err
	})
}

// unpackedMark is an empty file that the CLI creates after it has unpacked its files.
const unpackedMark = ".extraction-complete"

// inUse are files with which running CLIs mark the unpacked files as used. They are temporary and never executed.
var inUse = regexp.MustCompile(`^inuse\.[0-9]+\.(lock|hold)$`)

// walkTree calls f for all entries below dir except folders, ordered by relative path.
func walkTree(dir string, f func(rel, path string, info fs.FileInfo) error) error {
	type entry struct {
		rel, path string
		info      fs.FileInfo
	}
	var all []entry
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil || rel == unpackedMark || d.Type().IsRegular() && inUse.MatchString(rel) {
			return err
		}
		info, err := d.Info()
		all = append(all, entry{filepath.ToSlash(rel), path, info})
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.rel, b.rel) })
	for _, e := range all {
		if err := f(e.rel, e.path, e.info); err != nil {
			return err
		}
	}
	return nil
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// sumFile reads a file and returns its SHA-256.
func sumFile(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyBuffer(h, readerUntil{ctx, f}, make([]byte, 256<<10)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// readerUntil reads until its context ends.
type readerUntil struct {
	ctx context.Context
	io.Reader
}

func (r readerUntil) Read(b []byte) (int, error) {
	if cause := context.Cause(r.ctx); cause != nil {
		return 0, cause
	}
	return r.Reader.Read(b)
}
