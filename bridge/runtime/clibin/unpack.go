package clibin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
)

// PkgCacheEnv is the variable that sets the CLI's folder of unpacked files.
const PkgCacheEnv = "COPILOT_PKG_CACHE_HOME"

// unpackTimeout bounds unpacking, which takes 1 to 3 seconds on a fast disk.
const unpackTimeout = 5 * time.Minute

// Unpack makes the executable unpack its files, once for each version, and returns the directory for PkgCacheEnv.
// Otherwise each new home directory would take 235 MB and two seconds. The directory may be read-only afterwards.
//
// The CLI executes the unpacked files without a check. Unpack therefore compares them with the table of known
// digests, or with their digest after unpacking: it sets changed files aside and unpacks again. Call it before each
// start.
func (l *Locator) Unpack(ctx context.Context, bin Binary) (dir string, err error) {
	dir, err = l.Dir()
	if err != nil {
		return "", err
	}
	ready, err := readyFile(dir, bin)
	if err != nil {
		return "", err
	}
	// Without the lock an error may mean that another process is setting the files aside.
	if ok, err := l.isReady(ctx, ready, bin); ok && err == nil {
		return dir, nil
	}
	err = l.report(Progress{Stage: StageUnpack, Text: "unpacking the copilot CLI (once)"}, nil, func() error {
		if err := os.MkdirAll(filepath.Dir(ready), 0o700); err != nil {
			return err
		}
		lock, err := acquire(ctx, filepath.Join(dir, "pkg", ".lock"))
		if err != nil {
			return err
		}
		defer func() { _ = lock.Close() }()
		if ok, err := l.isReady(ctx, ready, bin); ok || err != nil {
			return err
		}
		if err := l.setAside(ctx, dir, ready, bin); err != nil {
			return err
		}
		return l.unpack(ctx, bin, dir, ready)
	})
	if err != nil {
		if fault.ReasonOf(err) == fault.CLIUnverified {
			return "", err
		}
		return "", fmt.Errorf("unpack %q: %w", bin.Path, err)
	}
	return dir, nil
}

// readyFile returns the marker file of a binary. It depends on the file and not only on its version, so that a
// reinstalled executable is unpacked again. Times have whole seconds, because layers of container images store no
// more.
func readyFile(dir string, bin Binary) (string, error) {
	info, err := os.Stat(bin.Path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", bin.Path, info.Size(), info.ModTime().Unix()))
	return filepath.Join(dir, "pkg", ".ready-"+hex.EncodeToString(sum[:8])), nil
}

// isReady reports whether the marker is valid: caches can be deleted, so the unpacked files must exist and be
// unchanged.
func (l *Locator) isReady(ctx context.Context, marker string, bin Binary) (bool, error) {
	text, err := os.ReadFile(marker)
	if err != nil {
		return false, nil
	}
	unpacked, sum, ok := strings.Cut(string(text), "\n")
	if _, err := os.Stat(unpacked); err != nil || !ok {
		return false, nil
	}
	if sum == "" {
		return true, nil // the layout is unknown
	}
	if want, err := l.pinnedTree(bin); err != nil || want != "" && want != sum {
		return false, err
	}
	got, err := l.treeDigest(ctx, unpacked)
	if err != nil {
		return false, fmt.Errorf("digest of %q: %w", unpacked, err)
	}
	return got == sum, nil
}

// pinnedTree returns the table's digest of the files that an executable unpacks; "" if unknown.
func (l *Locator) pinnedTree(bin Binary) (string, error) {
	table, err := l.table()
	if err != nil || bin.Digest == "" {
		return "", err
	}
	pin, _ := table.byExecutable(bin.Digest)
	return pin.Unpacked, nil
}

// asidePrefix is the prefix of folders with changed files.
const asidePrefix = ".changed-"

// setAside renames the folder of unpacked files unless its content is correct. The last renamed folder is kept for
// inspection.
//
// Executables of one version share the folder, for instance a wrapper script and the program that it starts. If an
// executable that is not in the table finds files at its first start, they belong to another executable, which may be
// running, and stay.
func (l *Locator) setAside(ctx context.Context, dir, marker string, bin Binary) error {
	unpacked := unpackedDir(dir, bin.Version)
	pkg := filepath.Join(dir, "pkg")
	if _, err := os.Lstat(unpacked); err != nil || unpacked == pkg {
		return nil
	}
	if want, err := l.pinnedTree(bin); err != nil {
		return err
	} else if want != "" {
		if got, err := l.treeDigest(ctx, unpacked); err == nil && got == want {
			return nil
		}
	} else if _, err := os.Lstat(marker); err != nil {
		return nil
	}
	if l.Logger != nil {
		l.Logger.Warn("unpacked files of the copilot CLI were changed: set aside and unpacked again",
			slog.String("path", unpacked))
	}
	old, _ := filepath.Glob(filepath.Join(pkg, asidePrefix+"*")) // the pattern is valid
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return os.Rename(unpacked, filepath.Join(pkg, asidePrefix+bin.Version+"-"+strconv.FormatInt(time.Now().Unix(), 10)))
}

// unpack runs the CLI until it has unpacked its files. Version 1.0.81 lacks the variable that makes it stop then, so
// it is started as a server whose input has ended: it unpacks, sends nothing to the network and exits.
func (l *Locator) unpack(ctx context.Context, bin Binary, dir, ready string) error {
	ctx, cancel := context.WithTimeout(ctx, unpackTimeout)
	defer cancel()
	home, err := os.MkdirTemp("", "copilot-grpc-unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	_, exit, err := process.Run(ctx, process.Options{
		Path: bin.Path,
		Args: []string{"--headless", "--no-auto-update", "--no-auto-login", "--stdio"},
		Env:  append(l.quietEnv(home), "COPILOT_SEA_EXTRACT_ONLY=1", PkgCacheEnv+"="+dir),
		// The input is closed from the start, so the grace is the time for the work.
		InputGrace: time.Second,
	})
	switch {
	case err != nil:
		return err
	case !exit.Clean():
		return exit
	}
	return l.sealUnpacked(ctx, bin, dir, ready)
}

// sealUnpacked verifies the unpacked files, makes them read-only to prevent accidents, and writes the marker.
func (l *Locator) sealUnpacked(ctx context.Context, bin Binary, dir, ready string) error {
	unpacked := unpackedDir(dir, bin.Version)
	if unpacked == filepath.Join(dir, "pkg") {
		return writeAtomic(ready, unpacked+"\n")
	}
	err := walkTree(unpacked, func(_, path string, info fs.FileInfo) error {
		if !info.Mode().IsRegular() {
			return nil
		}
		return os.Chmod(path, info.Mode().Perm()&^0o222)
	})
	if err != nil {
		return err
	}
	want, err := l.pinnedTree(bin)
	if err != nil {
		return err
	}
	sum, err := l.stableDigest(ctx, unpacked, want)
	if err != nil {
		return err
	}
	if want != "" && sum != want {
		return fault.New(fault.CLIUnverified,
			"files that %q unpacked to %q have the digest %s, but those of version %s have %s",
			bin.Path, unpacked, sum, bin.Version, want).With("path", unpacked).
			WithRemedy("remove them with \"rm -rf %s\", and reinstall the CLI", unpacked)
	}
	return writeAtomic(ready, unpacked+"\n"+sum)
}

// Number of attempts and pause between them while unpacked files have a wrong digest.
const (
	settleLooks = 20
	settleEvery = 500 * time.Millisecond
)

// stableDigest returns the digest of the unpacked files. A CLI that was started without the lock may be unpacking at
// the same time: stableDigest waits while the files change and have a wrong digest.
func (l *Locator) stableDigest(ctx context.Context, unpacked, want string) (sum string, err error) {
	before := ""
	for range settleLooks {
		sum, err = l.treeDigest(ctx, unpacked)
		if err == nil && (want == "" || sum == want || sum == before) {
			return sum, nil
		}
		before = sum
		select {
		case <-time.After(settleEvery):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return sum, err
}

// unpackedDir returns the folder of a version's unpacked files: pkg/<platform>/<version>. If it does not exist,
// because the CLI may change the layout, it returns dir.
func unpackedDir(dir, version string) string {
	if version != "" {
		if found, _ := filepath.Glob(filepath.Join(dir, "pkg", "*", version)); len(found) == 1 {
			return found[0]
		}
	}
	return filepath.Join(dir, "pkg")
}
