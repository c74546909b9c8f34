package chaos

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// summary is what came of many schedules.
type summary struct {
	o     options
	begun time.Time

	mu       sync.Mutex
	played   int
	failed   int
	forms    map[string]int // of CLIs
	times    map[string]time.Duration
	longest  map[string]time.Duration
	steps    int
	sessions int
	faults   map[string]int
	fewest   int // faults of one schedule
	calls    map[string]int
	counts   Counts
	first    uint64
	last     uint64
	notes    []string
}

func newSummary(o options) *summary {
	return &summary{
		o: o, begun: time.Now(), forms: map[string]int{}, times: map[string]time.Duration{},
		longest: map[string]time.Duration{}, faults: map[string]int{}, calls: map[string]int{}, fewest: -1,
	}
}

// add takes a report, and prints a line about it if it is of a failure.
func (s *summary) add(r *Report, stdout io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.played++
	form := r.Plan.form()
	s.forms[form]++
	s.times[form] += r.Took
	s.longest[form] = max(s.longest[form], r.Took)
	s.steps += r.Steps
	s.sessions += r.Sessions
	faults := 0
	for kind, n := range r.Faults {
		s.faults[kind] += n
		faults += n
	}
	if s.fewest < 0 || faults < s.fewest {
		s.fewest = faults
	}
	for name, n := range r.Calls {
		s.calls[name] += n
	}
	s.counts.Durable += r.Counts.Durable
	s.counts.Delivered += r.Counts.Delivered
	s.counts.Readers += r.Counts.Readers
	s.counts.Gaps += r.Counts.Gaps
	s.counts.Callbacks += r.Counts.Callbacks
	s.counts.Lives += r.Counts.Lives
	s.counts.Unordered += r.Counts.Unordered
	s.counts.Early += r.Counts.Early
	if s.played == 1 || r.Plan.Seed < s.first {
		s.first = r.Plan.Seed
	}
	s.last = max(s.last, r.Plan.Seed)
	if len(r.Violations) > 0 {
		s.failed++
		line := fmt.Sprintf("FAILED seed %d, %s: %d violations, the first: %s", r.Plan.Seed, form,
			len(r.Violations), head(r.Violations[0]))
		s.notes = append(s.notes, line)
		_, _ = fmt.Fprintf(stdout, "%s (%s)\n", line, s.o.keep(r))
	} else if s.played%50 == 0 {
		_, _ = fmt.Fprintf(stdout, "%v: %d played, %d failed\n", time.Since(s.begun).Round(time.Second), s.played,
			s.failed)
	}
}

func head(text string) string {
	if len(text) > 400 {
		return text[:400] + "…"
	}
	return text
}

// String is the summary for people.
func (s *summary) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(&b, "%-28s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("schedules", "%d, seeds %d to %d", s.played, s.first, s.last)
	line("with violations", "%d", s.failed)
	line("took", "%v, %d at once", time.Since(s.begun).Round(time.Second), s.o.parallel)
	for _, form := range []string{"fake", "real"} {
		if n := s.forms[form]; n > 0 {
			line("  "+form+" CLI", "%d, %v each, at most %v", n, (s.times[form] / time.Duration(n)).Round(time.Millisecond),
				s.longest[form].Round(time.Millisecond))
		}
	}
	line("steps", "%d", s.steps)
	line("sessions", "%d", s.sessions)
	line("lives of CLI processes", "%d", s.counts.Lives)
	line("durable events compared", "%d", s.counts.Durable)
	line("events delivered", "%d to %d readers and participants, %d gaps told", s.counts.Delivered, s.counts.Readers,
		s.counts.Gaps)
	line("bursts left out of order", "%d", s.counts.Unordered)
	line("told early by the CLI", "%d", s.counts.Early)
	line("answers the CLI took", "%d", s.counts.Callbacks)
	line("faults", "%d, at least %d in each schedule", total(s.faults), s.fewest)
	table(&b, s.faults)
	line("calls and turns", "%d", total(s.calls))
	table(&b, s.calls)
	for _, note := range s.notes {
		_, _ = fmt.Fprintln(&b, note)
	}
	return b.String()
}

func total(of map[string]int) (n int) {
	for _, k := range of {
		n += k
	}
	return n
}

func table(b *strings.Builder, of map[string]int) {
	names := slices.SortedFunc(maps.Keys(of),
		func(x, y string) int { return cmp.Or(cmp.Compare(of[y], of[x]), cmp.Compare(x, y)) })
	for _, name := range names {
		_, _ = fmt.Fprintf(b, "  %8d  %s\n", of[name], name)
	}
}
