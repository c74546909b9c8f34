package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/internal/gen/schemagen"
)

const usage = `usage:
  schemagen [-schemas DIR/1.0.81,DIR/1.0.102] [-out proto] [-ledger FILE] [-if-there]
      generate from the schema folders given, oldest first; a folder's name is the version
  schemagen update -cli VERSION
      the same from all pinned versions and that one, which is pinned from then on
  schemagen changelog [FROM] TO
      what changed between two versions; without FROM, since the pinned one before
  schemagen fetch [version ...]
      get the schemas out of the CLI's npm package, one folder per version`

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "fetch":
			return fetch(ctx, args[1:], out)
		case "update":
			return update(ctx, args[1:], out)
		case "changelog":
			return changelog(ctx, args[1:], out)
		}
	}
	return generate(args, out)
}

// output is where generated things go.
type output struct {
	root, ledger, pins, bridge string
}

func (o *output) flags(fs *flag.FlagSet) {
	fs.Usage = func() { fmt.Fprintln(fs.Output(), usage); fs.PrintDefaults() }
	fs.StringVar(&o.root, "out", "proto", "root of the .proto files")
	fs.StringVar(&o.ledger, "ledger", "internal/gen/schemagen/ledger.json", "ledger of numbers")
	fs.StringVar(&o.bridge, "bridge", "proto/copilot/bridge/v1", "folder of the API whose types are the core")
	fs.StringVar(&o.pins, "pins", "internal/gen/schemagen/pins.txt", "checksums of the schemas")
}

func generate(args []string, out io.Writer) error {
	fs := flag.NewFlagSet("schemagen", flag.ContinueOnError)
	var to output
	to.flags(fs)
	schemas := fs.String("schemas", "", "schema folders, oldest version first, separated by commas (default: what "+
		"fetch has put into the user's cache)")
	ifThere := fs.Bool("if-there", false, "do nothing when a schema folder is missing")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return errors.New(usage)
	}
	pins, err := schemagen.ReadPins(to.pins)
	if err != nil {
		return err
	}
	dirs, err := schemaDirs(*schemas, pins)
	if err != nil {
		return err
	}
	if missing := firstMissing(dirs); *ifThere && missing != "" {
		fmt.Fprintf(out, "not generated: %s is not there\n", missing)
		return nil
	}
	models, err := load(dirs, pins)
	if err != nil {
		return err
	}
	return to.write(models, out)
}

// write generates from models, and writes nothing if that fails.
func (o *output) write(models []*schemagen.Model, out io.Writer) error {
	ledger, err := schemagen.ReadLedger(o.ledger)
	if err != nil {
		return err
	}
	core, err := schemagen.BridgeUses(o.bridge)
	if err != nil {
		return err
	}
	made, err := schemagen.Roll(models, ledger, core)
	if err != nil {
		return err
	}
	if err := made.Write(o.root); err != nil {
		return err
	}
	if err := ledger.Write(o.ledger); err != nil {
		return err
	}
	fmt.Fprintf(out, "wrote %d files for %d versions\n", len(made.Files), len(models))
	return nil
}

// schemaDirs splits the list of folders; without one, all pinned versions are
// taken from the cache.
func schemaDirs(list string, pins schemagen.Pins) ([]string, error) {
	if list != "" {
		return strings.Split(list, ","), nil
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, p := range pins {
		dirs = append(dirs, filepath.Join(cache, p.Version))
	}
	return dirs, nil
}

func firstMissing(dirs []string) string {
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err != nil {
			return dir
		}
	}
	return ""
}

func load(dirs []string, pins schemagen.Pins) ([]*schemagen.Model, error) {
	var models []*schemagen.Model
	for _, dir := range dirs {
		m, err := schemagen.Load(dir, filepath.Base(dir), pins)
		if err != nil {
			return nil, err
		}
		models = append(models, m)
	}
	return models, nil
}
