package schemagen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

var versionForm = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9]+)?$`)

// Fetch puts the schemas of a CLI version into dir/version, unless they are there
// already. Newer packages hold them only inside the executable, which writes them
// out when it unpacks itself; nothing of it is run beyond that. A version that is
// pinned must have the pinned schemas; the pin of what was found is returned.
func Fetch(ctx context.Context, dir, version string, pins Pins) (Pin, error) {
	if !versionForm.MatchString(version) {
		return Pin{}, fmt.Errorf("fetch %q: not a version", version)
	}
	dest := filepath.Join(dir, version)
	_, sums, err := readSchemas(dest)
	if err != nil {
		if err := fetch(ctx, dir, dest, version); err != nil {
			return Pin{}, fmt.Errorf("fetch %s: %w", version, err)
		}
		if _, sums, err = readSchemas(dest); err != nil {
			return Pin{}, fmt.Errorf("fetch %s: %w", version, err)
		}
	}
	if pins.Find(version) != nil {
		if err := pins.check(version, sums); err != nil {
			return Pin{}, err
		}
	}
	return Pin{version, sums}, nil
}

// fetch installs a version in a new folder below dir and copies its schemas.
func fetch(ctx context.Context, dir, dest, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	found, err := unpack(ctx, tmp, version)
	if err != nil {
		return err
	}
	return keep(found, dest)
}

// unpack installs the package below tmp and returns the folder of its schemas.
func unpack(ctx context.Context, tmp, version string) (string, error) {
	install := exec.CommandContext(ctx, "npm", "install", "--prefix", tmp, "--no-save", "--no-audit",
		"--no-fund", "--ignore-scripts", "@github/copilot@"+version)
	if err := runQuiet(install); err != nil {
		return "", err
	}
	exe, err := one(filepath.Join(tmp, "node_modules", "@github", "copilot-*", executable()))
	if err != nil {
		return "", err
	}
	cache := filepath.Join(tmp, "unpacked")
	extract := exec.CommandContext(ctx, exe)
	extract.Dir = tmp
	extract.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + tmp,
		"COPILOT_SEA_EXTRACT_ONLY=1", "COPILOT_PKG_CACHE_HOME=" + cache,
	}
	// Older versions unpack themselves too, but then miss a prompt and fail: what counts
	// is what they leave, and that its checksums are right.
	failed := runQuiet(extract)
	file, err := one(filepath.Join(cache, "pkg", "*", version, "schemas", SchemaFiles[0]))
	if err != nil {
		return "", errors.Join(err, failed)
	}
	return filepath.Dir(file), nil
}

func executable() string {
	if runtime.GOOS == "windows" {
		return "copilot.exe"
	}
	return "copilot"
}

// one returns the only file that matches a pattern.
func one(pattern string) (string, error) {
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	if len(matches) != 1 {
		return "", fmt.Errorf("%d files match %q, not one", len(matches), pattern)
	}
	return matches[0], nil
}

// runQuiet runs a command; what it wrote is part of the error when it fails.
func runQuiet(cmd *exec.Cmd) error {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(out.String())
		return fmt.Errorf("run %q: %w: %s", filepath.Base(cmd.Path), err, text[max(0, len(text)-2000):])
	}
	return nil
}

// keep copies the schemas to their place.
func keep(from, dest string) error {
	if err := os.MkdirAll(dest, 0o755); err != nil {
		return fmt.Errorf("keep schemas: %w", err)
	}
	for _, file := range SchemaFiles {
		data, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			return fmt.Errorf("keep schemas: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dest, file), data, 0o644); err != nil {
			return fmt.Errorf("keep schemas: %w", err)
		}
	}
	return nil
}
