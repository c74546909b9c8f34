package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/copilot-grpc/copilot-grpc/internal/gen/schemagen"
)

func fetch(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("schemagen fetch", flag.ContinueOnError)
	dir := fs.String("dir", "", "folder to put the schemas in, one folder per version (default: in the user's cache)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	pins, err := schemagen.Pinned()
	if err != nil {
		return err
	}
	if *dir == "" {
		if *dir, err = cacheDir(); err != nil {
			return err
		}
	}
	versions := fs.Args()
	if len(versions) == 0 {
		for _, p := range pins {
			versions = append(versions, p.Version)
		}
	}
	for _, v := range versions {
		if _, err := schemagen.Fetch(ctx, *dir, v, pins); err != nil {
			return err
		}
		fmt.Fprintln(out, filepath.Join(*dir, v))
	}
	return nil
}

// cacheDir returns the folder of fetched schemas, which is private to the user because the schemas may not be
// published.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache folder: %w", err)
	}
	return filepath.Join(cache, "copilot-grpc", "schemas"), nil
}
