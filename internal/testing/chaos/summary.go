package main

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

// tally counts by names.
type tally map[string]int

func (t tally) add(other tally) {
	for name, n := range other {
		t[name] += n
	}
}

func (t tally) total() (sum int) {
	for _, n := range t {
		sum += n
	}
	return sum
}

// String is a line for each name, the largest count first.
func (t tally) String() string {
	names := slices.SortedFunc(maps.Keys(t),
		func(x, y string) int { return cmp.Or(cmp.Compare(t[y], t[x]), cmp.Compare(x, y)) })
	var b strings.Builder
	for _, name := range names {
		_, _ = fmt.Fprintf(&b, "  %8d  %s\n", t[name], name)
	}
	return b.String()
}

// summary is what came of many schedules.
type summary struct {
	o     options
	begun time.Time

	mu      sync.Mutex
	forms   tally // schedules, by CLI
	times   map[string]time.Duration
	longest map[string]time.Duration
	counts  tally
	faults  tally
	fewest  int // faults of one schedule
	calls   tally
	last    uint64   // seed
	failed  []string // a line for each schedule with violations
}

func newSummary(o options) *summary {
	return &summary{
		o: o, begun: time.Now(), forms: tally{}, times: map[string]time.Duration{}, longest: map[string]time.Duration{},
		counts: tally{}, faults: tally{}, calls: tally{}, fewest: -1,
	}
}

// add takes a report, and prints a line about it if it is of a failure.
func (s *summary) add(r *Report, stdout io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	form := r.Plan.form()
	s.forms[form]++
	s.times[form] += r.Took
	s.longest[form] = max(s.longest[form], r.Took)
	s.counts.add(r.Counts)
	s.faults.add(r.Faults)
	s.calls.add(r.Calls)
	if faults := r.Faults.total(); s.fewest < 0 || faults < s.fewest {
		s.fewest = faults
	}
	s.last = max(s.last, r.Plan.Seed)
	played := s.forms.total()
	if len(r.Violations) > 0 {
		line := fmt.Sprintf("FAILED seed %d, %s: %d violations, the first: %.400s", r.Plan.Seed, form, len(r.Violations),
			r.Violations[0])
		s.failed = append(s.failed, line)
		_, _ = fmt.Fprintf(stdout, "%s (%s)\n", line, s.o.keep(r))
	} else if played%50 == 0 {
		_, _ = fmt.Fprintf(stdout, "%v: %d played, %d failed\n", time.Since(s.begun).Round(time.Second), played,
			len(s.failed))
	}
}

// String is the summary for people.
func (s *summary) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(&b, "%-28s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("schedules", "%d, seeds %d to %d", s.forms.total(), s.o.seed, s.last)
	line("with violations", "%d", len(s.failed))
	line("took", "%v, %d at once", time.Since(s.begun).Round(time.Second), s.o.parallel)
	for _, form := range slices.Sorted(maps.Keys(s.forms)) {
		n := s.forms[form]
		line("  "+form+" CLI", "%d, %v each, at most %v", n, (s.times[form] / time.Duration(n)).Round(time.Millisecond),
			s.longest[form].Round(time.Millisecond))
	}
	line("compared", "\n%v", s.counts)
	line("faults", "%d, at least %d in each schedule\n%v", s.faults.total(), s.fewest, s.faults)
	line("calls and turns", "%d\n%v", s.calls.total(), s.calls)
	for _, failed := range s.failed {
		_, _ = fmt.Fprintln(&b, failed)
	}
	return b.String()
}
