// Package bench measures the bridge beside what it stands on: a CLI spoken to directly.
// Everything is measured by processes that really run: the server is the one that is
// shipped, callers speak through clients/go, and CPU time is that of the server's
// process alone. Ways that are compared take turns within one run, since a machine is
// not the same from one minute to the next.
package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/loadcli"
)

// Config says what to measure with.
type Config struct {
	// Server is the copilot-grpc executable, LoadCLI that of cmd/loadcli, Raw that of
	// cmd/rawgrpc, FakeCLI that of fakecli/cmd/fakecopilot.
	Server, LoadCLI, Raw, FakeCLI string
	// CLI is the real CLI; without it real turns are not measured.
	CLI string
	// Module is the folder of the module, which has the drivers of the SDKs.
	Module string
	// Repeats is how often everything is measured.
	Repeats int
	// Operations is the number of round trips in a repeat, and of turns in a soak.
	Operations int
	// BlastBytes is how much JSON the CLI sends in a repeat.
	BlastBytes int
	// Turns is the number of real turns in a repeat.
	Turns int
	// Only are the sections to measure; empty means all.
	Only []string
	// Payloads are the events to blast; empty means all.
	Payloads []string
	// Versus are executables to compare with each other, and with nothing else.
	Versus []string
	// Log receives a line for each step.
	Log io.Writer
}

// run is one run of the benchmarks.
type run struct {
	cfg Config
}

// Run measures, and returns the tables.
func Run(ctx context.Context, cfg Config) ([]Table, error) {
	r := &run{cfg: cfg}
	if len(cfg.Versus) > 0 && !slices.Equal(cfg.Only, []string{"counts"}) {
		t, err := r.versus(ctx)
		return []Table{t}, err
	}
	if slices.Equal(cfg.Only, []string{"soak"}) { // only if it is asked for
		t, err := r.soakTable(ctx)
		return []Table{t}, err
	}
	sections := []struct {
		name    string
		measure func(context.Context) (Table, error)
	}{
		{"turn", r.turnTable},
		{"roundtrip", r.roundTripTable},
		{"counts", r.countsTable},
		{"ingest", r.ingestTable},
		{"fanout", r.fanOutTable},
		{"scale", r.scaleTable},
		{"storm", r.stormTable},
		{"memory", r.memoryTable},
	}
	var tables []Table
	for _, s := range sections {
		if len(cfg.Only) > 0 && !slices.Contains(cfg.Only, s.name) {
			continue
		}
		fmt.Fprintf(cfg.Log, "bench: %s\n", s.name)
		t, err := s.measure(ctx)
		if err != nil {
			return tables, fmt.Errorf("%s: %w", s.name, err)
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// payloads are the events that are blasted.
func (c *Config) payloads() []loadcli.Payload {
	if len(c.Payloads) == 0 {
		return loadcli.Payloads
	}
	return slices.DeleteFunc(slices.Clone(loadcli.Payloads), func(p loadcli.Payload) bool {
		return !slices.Contains(c.Payloads, p.Name)
	})
}

// end closes something that the measurements no longer need, and logs a failure.
func (r *run) end(what string, end func() error) {
	if err := end(); err != nil {
		fmt.Fprintf(r.cfg.Log, "bench: ending %s: %v\n", what, err)
	}
}

// shuffled is the order in which the ways take their turns.
func shuffled(ways []string) []string {
	out := slices.Clone(ways)
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
