package schemagen

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Config says what to generate.
type Config struct {
	// Schemas are the models of single versions, oldest first, as Load returns them.
	Schemas []*Model
	// Ledger gives the numbers. It is brought up to date.
	Ledger *Ledger
	// Core names the messages and enums that copilot.bridge.v1 refers to: see BridgeUses.
	Core []string
	// Strict fails on rows of exception tables that match nothing. It is off for sets
	// of schemas that lack a pinned version: a row may be there for that one.
	Strict bool
}

// Roll brings a ledger up to date with a history of schemas, one version at a time, as
// it would have grown had each been generated from when it came out. core names what
// copilot.bridge.v1 refers to. It returns what all of them make.
func Roll(schemas []*Model, l *Ledger, core []string) (*Output, error) {
	if len(schemas) == 0 {
		return nil, errors.New("no schemas")
	}
	for i := range schemas[:len(schemas)-1] {
		if _, err := number(Config{Schemas: schemas[:i+1], Ledger: l, Core: core}); err != nil {
			return nil, fmt.Errorf("up to %s: %w", schemas[i].Versions[0], err)
		}
	}
	strict, err := complete(schemas)
	if err != nil {
		return nil, err
	}
	out, err := Generate(Config{Schemas: schemas, Ledger: l, Core: core, Strict: strict})
	if err != nil {
		return nil, fmt.Errorf("up to %s: %w", schemas[len(schemas)-1].Versions[0], err)
	}
	return out, nil
}

// complete reports whether schemas has every pinned version.
func complete(schemas []*Model) (bool, error) {
	pins, err := Pinned()
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(pins, func(p Pin) bool {
		return !slices.ContainsFunc(schemas, func(m *Model) bool { return m.Versions[0] == p.Version })
	}), nil
}

// Output is what was generated.
type Output struct {
	// Files are the texts of the .proto files by their path below the proto root.
	Files map[string]string
	// Plan is what they were made of.
	Plan *Plan
}

// Generate makes .proto files from schemas and the overlay.
func Generate(cfg Config) (*Output, error) {
	pl, err := number(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Ledger.Tables, err = TablesSum(); err != nil {
		return nil, err
	}
	words, err := loadWording(wordFiles)
	if err != nil {
		return nil, err
	}
	e := &emitter{plan: pl, docs: newDocs(pl, words)}
	out := &Output{Files: e.files(), Plan: pl}
	if dead := words.dead(); cfg.Strict && len(dead) > 0 {
		return nil, fmt.Errorf("texts for nothing: %s", strings.Join(dead, "; "))
	}
	return out, nil
}

// number plans what schemas and the overlay make, and gives it its numbers.
func number(cfg Config) (*Plan, error) {
	m, err := merged(cfg.Schemas)
	if err != nil {
		return nil, err
	}
	pl, hits, err := newPlan(m)
	if err != nil {
		return nil, err
	}
	if cfg.Strict {
		if err := deadRows(m, hits); err != nil {
			return nil, err
		}
		if missing := pl.missingRoots(cfg.Core); len(missing) > 0 {
			return nil, fmt.Errorf("copilot.bridge.v1 refers to types that no schema has: %s",
				strings.Join(missing, ", "))
		}
	}
	pl.assignFiles(cfg.Ledger.growCore(pl, cfg.Core))
	cfg.Ledger.number(pl)
	return pl, nil
}

func merged(schemas []*Model) (*Model, error) {
	m, err := Merge(schemas)
	if err != nil {
		return nil, err
	}
	o, err := loadOverlay(overlayFiles)
	if err != nil {
		return nil, err
	}
	return m, m.applyOverlay(o)
}

// Write replaces the folder of generated files below root.
func (o *Output) Write(root string) error {
	dir := filepath.Join(root, filepath.FromSlash(protoDir))
	if err := os.RemoveAll(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("empty %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	for _, name := range sortedKeys(o.Files) {
		if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(name)), []byte(o.Files[name]),
			0o644); err != nil {
			return fmt.Errorf("write generated file: %w", err)
		}
	}
	return nil
}
