package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/internal/schemagen"
)

const usage = `usage:
  schemagen [-schemas DIR/1.0.81,DIR/1.0.102] [-out proto] [-ledger FILE]
      generate from the schema folders given, oldest first; a folder's name is the version
  schemagen fetch [-dir DIR] [version ...]
      get the schemas out of the CLI's npm package, one folder per version`

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == "fetch" {
		return fetch(ctx, args[1:], out)
	}
	return generate(args, out)
}

func generate(args []string, out io.Writer) error {
	fs := flag.NewFlagSet("schemagen", flag.ContinueOnError)
	fs.Usage = func() { fmt.Fprintln(fs.Output(), usage); fs.PrintDefaults() }
	schemas := fs.String("schemas", "", "schema folders, oldest version first, separated by commas (default: what fetch has put into the user's cache)")
	root := fs.String("out", "proto", "root of the .proto files")
	ledgerFile := fs.String("ledger", "internal/schemagen/ledger.json", "ledger of numbers")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return errors.New(usage)
	}
	dirs, err := schemaDirs(*schemas)
	if err != nil {
		return err
	}
	models, err := load(dirs)
	if err != nil {
		return err
	}
	ledger, err := schemagen.ReadLedger(*ledgerFile)
	if err != nil {
		return err
	}
	steps, err := schemagen.Roll(models, ledger)
	if err != nil {
		return err
	}
	last := steps[len(steps)-1]
	if err := last.Write(*root); err != nil {
		return err
	}
	if err := ledger.Write(*ledgerFile); err != nil {
		return err
	}
	fmt.Fprintf(out, "wrote %d files for %d versions\n", len(last.Files), len(models))
	return nil
}

// schemaDirs splits the list of folders; without one, all pinned versions are
// taken from the cache.
func schemaDirs(list string) ([]string, error) {
	if list != "" {
		return strings.Split(list, ","), nil
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, p := range schemagen.Pins {
		dirs = append(dirs, filepath.Join(cache, p.Version))
	}
	return dirs, nil
}

func load(dirs []string) ([]*schemagen.Model, error) {
	var models []*schemagen.Model
	for _, dir := range dirs {
		m, err := schemagen.Load(dir, filepath.Base(dir))
		if err != nil {
			return nil, err
		}
		models = append(models, m)
	}
	return models, nil
}
