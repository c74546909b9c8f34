package clibin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

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
func (l *Locator) Unpack(ctx context.Context, bin Binary) (dir string, err error) {
	dir, err = l.Dir()
	if err != nil {
		return "", err
	}
	ready, err := readyFile(dir, bin)
	if err != nil {
		return "", err
	}
	if isReady(ready) {
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
		defer lock.release()
		if isReady(ready) {
			return nil
		}
		return l.unpack(ctx, bin, dir, ready)
	})
	if err != nil {
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

// isReady believes the marker only while what it names exists: caches get
// cleared.
func isReady(marker string) bool {
	unpacked, err := os.ReadFile(marker)
	if err != nil {
		return false
	}
	_, err = os.Stat(string(unpacked))
	return err == nil
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
	unpacked := unpackedDir(dir, bin.Version)
	return os.WriteFile(ready, []byte(unpacked), 0o600)
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
