package shim

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Counts is how often each method went which way: calls by their JSON-RPC method, what the
// CLI sent by its method, and events by their type with "session.event:" before it.
type Counts struct {
	// Typed went by the rpcs and messages that stand for them.
	Typed map[string]int `json:"typed"`
	// Raw went as JSON text, by RawService or where no message could hold it.
	Raw map[string]int `json:"raw"`
	// Own were answered by the shim itself.
	Own map[string]int `json:"own"`
}

// counter counts.
type counter struct {
	mu sync.Mutex
	c  Counts
}

func newCounter() *counter {
	return &counter{c: Counts{Typed: map[string]int{}, Raw: map[string]int{}, Own: map[string]int{}}}
}

func (c *counter) typed(name string) { c.add(c.c.Typed, name) }
func (c *counter) raw(name string)   { c.add(c.c.Raw, name) }
func (c *counter) own(name string)   { c.add(c.c.Own, name) }

// maxNames bounds the counted names, because a program can invent any number of methods. Further ones count as
// "other".
const maxNames = 4096

func (c *counter) add(to map[string]int, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := to[name]; !known && len(to) >= maxNames {
		name = "other"
	}
	to[name]++
}

// snapshot returns the counts as they are now.
func (c *counter) snapshot() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Counts{Typed: maps.Clone(c.c.Typed), Raw: maps.Clone(c.c.Raw), Own: maps.Clone(c.c.Own)}
}

// Print writes the counts for people.
func (c Counts) Print(w io.Writer) {
	for _, way := range []struct {
		name   string
		counts map[string]int
	}{{"typed", c.Typed}, {"raw", c.Raw}, {"own", c.Own}} {
		for _, name := range slices.Sorted(maps.Keys(way.counts)) {
			fmt.Fprintf(w, "%s\t%d\t%s\n", way.name, way.counts[name], name)
		}
	}
}

// WriteFile writes the counts to a file, as JSON. If the path is a folder, the file's name has the process id, so
// that processes with the same environment do not overwrite each other's.
func (c Counts) WriteFile(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, fmt.Sprintf("%d.json", os.Getpid()))
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}
