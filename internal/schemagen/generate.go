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
	// Strict fails on rows of exception tables that match nothing. It is off for
	// older sets of schemas than the newest.
	Strict bool
}

// Roll brings a ledger up to date with a history of schemas, one version at a
// time, as it would have grown had each been generated from when it came out.
// It returns the output of every step.
func Roll(schemas []*Model, l *Ledger) ([]*Output, error) {
	var out []*Output
	for i := range schemas {
		o, err := Generate(Config{Schemas: schemas[:i+1], Ledger: l, Strict: i == len(schemas)-1})
		if err != nil {
			return nil, fmt.Errorf("up to %s: %w", schemas[i].Versions[0], err)
		}
		out = append(out, o)
	}
	return out, nil
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
	m, used, err := merged(cfg.Schemas)
	if err != nil {
		return nil, err
	}
	pl, hits, err := newPlan(m)
	if err != nil {
		return nil, err
	}
	if cfg.Strict {
		if err := deadRows(m, hits, used); err != nil {
			return nil, err
		}
	}
	pl.assignFiles()
	cfg.Ledger.number(pl)
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

func merged(schemas []*Model) (*Model, map[string]bool, error) {
	m, used, err := Merge(schemas)
	if err != nil {
		return nil, nil, err
	}
	o, err := loadOverlay(overlayFiles)
	if err != nil {
		return nil, nil, err
	}
	if err := m.applyOverlay(o); err != nil {
		return nil, nil, err
	}
	return m, used, nil
}

// deadRows fails for rows of exception tables that nothing needed.
func deadRows(m *Model, hits, used map[string]bool) error {
	var dead []string
	for _, r := range renames {
		if m.defs[r.To] == nil {
			dead = append(dead, "rename "+r.From)
		}
	}
	for _, r := range typeChanges {
		if !used[r.Path] {
			dead = append(dead, "type change "+r.Path)
		}
	}
	for _, r := range presences {
		if !hits["presence "+r.Path] {
			dead = append(dead, "presence "+r.Path)
		}
	}
	for _, r := range nullings {
		if !hits["null "+r.Path] {
			dead = append(dead, "null "+r.Path)
		}
	}
	for _, r := range secretRows {
		if !hits["secret "+r.Path] {
			dead = append(dead, "secret "+r.Path)
		}
	}
	for _, r := range paramsOverrides {
		if !hits["params "+r.Method] {
			dead = append(dead, "params "+r.Method)
		}
	}
	if len(dead) > 0 {
		slices.Sort(dead)
		return fmt.Errorf("exceptions that match nothing: %s", strings.Join(dead, "; "))
	}
	return nil
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
		if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(name)), []byte(o.Files[name]), 0o644); err != nil {
			return fmt.Errorf("write generated file: %w", err)
		}
	}
	return nil
}
