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

// PkgCacheEnv tells the CLI where its unpacked files are.
const PkgCacheEnv = "COPILOT_PKG_CACHE_HOME"

// unpackTimeout bounds the unpacking; it takes 1 to 3 seconds on a fast disk.
const unpackTimeout = 5 * time.Minute

// Unpack lets the executable unpack itself, once for each version, and returns
// the directory to give to it as PkgCacheEnv. Without this each new home
// directory would cost 235 MB and two seconds. The directory may be read-only
// afterwards.
//
// The CLI executes what is there without looking at it. Unpack therefore
// compares the files with the table of known digests, or with what they were
// when they were unpacked: changed ones are set aside, and unpacked again. It is
// to be called before each start.
func (l *Locator) Unpack(ctx context.Context, bin Binary) (dir string, err error) {
	dir, err = l.Dir()
	if err != nil {
		return "", err
	}
	ready, err := readyFile(dir, bin)
	if err != nil {
		return "", err
	}
	// Without the lock an error may be that somebody else sets the files aside just now.
	if ok, err := l.isReady(ctx, ready, bin); ok && err == nil {
		return dir, nil
	}
	err = l.report(StageUnpack, "unpacking the copilot CLI (once)", func() error {
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

// readyFile names the marker of a binary. The file, not the version, is what was
// unpacked: a reinstalled one is unpacked again. Whole seconds, because the layers
// of a container image keep no more.
func readyFile(dir string, bin Binary) (string, error) {
	info, err := os.Stat(bin.Path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", bin.Path, info.Size(), info.ModTime().Unix()))
	return filepath.Join(dir, "pkg", ".ready-"+hex.EncodeToString(sum[:8])), nil
}

// isReady believes the marker only while what it names exists (caches get
// cleared) and is what it was.
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
		return true, nil // of an unknown layout
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

// pinnedTree returns the digest that the table has for what an executable unpacks, "" if none.
func (l *Locator) pinnedTree(bin Binary) (string, error) {
	table, err := l.table()
	if err != nil || bin.Digest == "" {
		return "", err
	}
	pin, _ := table.byExecutable(bin.Digest)
	return pin.Unpacked, nil
}

// asidePrefix begins the names of folders whose files were changed.
const asidePrefix = ".changed-"

// setAside renames what is there in the place of what the executable unpacks, unless it is just
// that. Of those set aside the last is kept, for whoever wants to know what was changed.
//
// Executables of one version share the place: a wrapper script and the program that it starts,
// say. What one that is not in the table finds there at its first start belongs to another, which
// may be running from it, and stays.
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
		l.Logger.Warn("what the copilot CLI had unpacked is not what it unpacks: set aside and unpacked again",
			slog.String("path", unpacked))
	}
	old, _ := filepath.Glob(filepath.Join(pkg, asidePrefix+"*")) // the pattern is good
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return os.Rename(unpacked, filepath.Join(pkg, asidePrefix+bin.Version+"-"+strconv.FormatInt(time.Now().Unix(), 10)))
}

// unpack runs the CLI so that it unpacks itself. 1.0.81 does not know the
// variable that makes it stop there, so it is started as a server whose input
// has already ended: that too unpacks, asks nothing of the network and exits.
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
		// Its input is closed from the beginning: the grace is for the work.
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

// sealUnpacked verifies what was unpacked, makes it read-only against accidents, and writes the
// marker.
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
	sum, err := l.settledDigest(ctx, unpacked, want)
	if err != nil {
		return err
	}
	if want != "" && sum != want {
		return fault.New(fault.CLIUnverified, "what %q unpacked to %q has the digest %s, but version %s unpacks files with %s",
			bin.Path, unpacked, sum, bin.Version, want).With("path", unpacked)
	}
	return writeAtomic(ready, unpacked+"\n"+sum)
}

// How often files that are not as they should be are looked at again, and how long after.
const (
	settleLooks = 20
	settleEvery = 500 * time.Millisecond
)

// settledDigest returns the digest of what was unpacked. A CLI that was started without the lock
// may be unpacking itself there: while the files change, and are not as wanted, it waits.
func (l *Locator) settledDigest(ctx context.Context, unpacked, want string) (sum string, err error) {
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

// unpackedDir returns where the version was unpacked: pkg/<platform>/<version>.
// If it is not there (the layout is the CLI's own business) the cache as a
// whole has to do.
func unpackedDir(dir, version string) string {
	if version != "" {
		if found, _ := filepath.Glob(filepath.Join(dir, "pkg", "*", version)); len(found) == 1 {
			return found[0]
		}
	}
	return filepath.Join(dir, "pkg")
}
