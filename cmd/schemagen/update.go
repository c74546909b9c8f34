package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"

	"github.com/copilot-grpc/copilot-grpc/internal/gen/schemagen"
)

// update adds a version of the CLI to the generated ones. It writes the pin last, so that a version that cannot be
// generated is not pinned.
func update(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("schemagen update", flag.ContinueOnError)
	var to output
	to.flags(fs)
	version := fs.String("cli", "", "the CLI version")
	dir := fs.String("dir", "", "folder of the schemas, one folder per version (default: in the user's cache)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *version == "" || fs.NArg() > 0 {
		return errors.New(usage)
	}
	pins, err := schemagen.ReadPins(to.pins)
	if err != nil {
		return err
	}
	if *dir == "" {
		if *dir, err = cacheDir(); err != nil {
			return err
		}
	}
	pin, err := schemagen.Fetch(ctx, *dir, *version, pins)
	if err != nil {
		return err
	}
	if pins.Find(*version) == nil {
		pins = pins.With(pin)
	}
	models, err := fetchAll(ctx, *dir, pins)
	if err != nil {
		return err
	}
	if err := to.write(models, out); err != nil {
		return err
	}
	return pins.Write(to.pins)
}

// fetchAll loads the schemas of every pinned version, and downloads missing ones.
func fetchAll(ctx context.Context, dir string, pins schemagen.Pins) ([]*schemagen.Model, error) {
	var dirs []string
	for _, p := range pins {
		if _, err := schemagen.Fetch(ctx, dir, p.Version, pins); err != nil {
			return nil, err
		}
		dirs = append(dirs, filepath.Join(dir, p.Version))
	}
	return load(dirs, pins)
}

func changelog(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("schemagen changelog", flag.ContinueOnError)
	dir := fs.String("dir", "", "folder of the schemas, one folder per version (default: in the user's cache)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	pins, err := schemagen.Pinned()
	if err != nil {
		return err
	}
	versions := fs.Args()
	if len(versions) == 1 {
		before := pins.Before(versions[0])
		if before == "" {
			return fmt.Errorf("changelog: %q is the oldest version: there is none to compare it with", versions[0])
		}
		versions = []string{before, versions[0]}
	}
	if len(versions) != 2 {
		return errors.New(usage)
	}
	if *dir == "" {
		if *dir, err = cacheDir(); err != nil {
			return err
		}
	}
	var models [2]*schemagen.Model
	for i, v := range versions {
		pin, err := schemagen.Fetch(ctx, *dir, v, pins)
		if err != nil {
			return err
		}
		if models[i], err = schemagen.Load(filepath.Join(*dir, v), v, schemagen.Pins{pin}); err != nil {
			return err
		}
	}
	return schemagen.Compare(models[0], models[1]).Print(out)
}
