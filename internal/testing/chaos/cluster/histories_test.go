package cluster

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// historyLimit bounds the check of one history, which takes milliseconds.
const historyLimit = time.Minute

// directoryEnv names the directory of the histories that are not linearizable; the default is that of temporary files.
const directoryEnv = "CLUSTER_HISTORIES"

// checkHistories checks the histories of a schedule, counts them, and returns the violations. It writes the parts that are
// not linearizable into files whose names begin with base.
func (c *tally) checkHistories(t *testing.T, record *Record, base string, limit time.Duration) (found []string) {
	t.Helper()
	report := fmt.Sprintf("histories: %d changes of owners were not seen", len(record.Unseen))
	for _, h := range record.Histories() {
		begin := time.Now()
		result, illegal := h.Check(limit)
		report += fmt.Sprintf("; %s: %s, %d operations in %d parts, %v", h.Name, result, h.Operations(),
			len(h.parts), time.Since(begin).Round(time.Microsecond))
		c.add(h, result)
		if result == porcupine.Unknown {
			found = append(found, fmt.Sprintf("%s: unknown, the check was not finished within %v", h.Name, limit))
		}
		for n, one := range illegal {
			name := fmt.Sprintf("%s-%s-%d", base, h.Name, n)
			if err := one.Write(name); err != nil {
				t.Error(err)
			}
			found = append(found, fmt.Sprintf("%s: %v (%s.txt, .html)", h.Name, one, name))
		}
	}
	t.Log(report)
	return found
}

// historyBase begins the names of the files of a schedule's histories.
func historyBase(p Plan) string {
	name := fmt.Sprint("chaos-cluster-", p.Seed)
	if p.Real {
		name += "-real"
	}
	return filepath.Join(cmp.Or(os.Getenv(directoryEnv), os.TempDir()), name)
}

// tally counts the histories of all schedules, and their operations. Its mutex guards the other fields.
type tally struct {
	mu         sync.Mutex
	operations map[string]int
	results    map[porcupine.CheckResult]int
}

func (c *tally) add(h *History, result porcupine.CheckResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.operations == nil {
		c.operations, c.results = map[string]int{}, map[porcupine.CheckResult]int{}
	}
	c.operations[h.Name] += h.Operations()
	c.results[result]++
}

func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("histories: %d linearizable, %d not, %d unknown; operations: %v", c.results[porcupine.Ok],
		c.results[porcupine.Illegal], c.results[porcupine.Unknown], c.operations)
}

// A history that is not linearizable is a violation, and is written for people and as a page.
func TestIllegalHistory(t *testing.T) {
	t.Parallel()
	base := filepath.Join(t.TempDir(), "seed")
	r := &Record{Observations: Observations{
		Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0")},
		Calls:   []Call{answered(ms(3, 4), "r0"), answered(ms(5, 6), "r1")},
	}}
	checked := &tally{}
	found := checked.checkHistories(t, r, base, historyLimit)
	const violation = "session s: no order of 3 operations explains ListPending s through r0: done, owner r1"
	want := []string{"ownership: " + violation + " (" + base + "-ownership-0.txt, .html)"}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	text, err := os.ReadFile(base + "-ownership-0.txt")
	if err != nil {
		t.Fatal(err)
	}
	const lines = violation + `
           1ms to          2ms  change 1: the owner is r0 at term 5
           3ms to          4ms  ListPending s through r0: done, owner r0
?          5ms to          6ms  ListPending s through r0: done, owner r1
`
	if string(text) != lines {
		t.Errorf("the history is\n%s\nwant\n%s", text, lines)
	}
	if page, err := os.ReadFile(base + "-ownership-0.html"); err != nil || !strings.Contains(string(page), "owner r1") {
		t.Errorf("the page has %d bytes, %v", len(page), err)
	}
	const counts = "histories: 2 linearizable, 1 not, 0 unknown; operations: map[claims:0 ownership:3 requests:0]"
	if got := checked.String(); got != counts {
		t.Errorf("counted %q, want %q", got, counts)
	}
}

// A history that cannot be checked in time is a violation, too.
func TestUnknownHistory(t *testing.T) {
	t.Parallel()
	r := &Record{}
	for i := range 40 { // all orders of these are to be tried, and none is right
		r.Calls = append(r.Calls, resolved(ms(7, 8), Open, fmt.Sprint(i)))
	}
	r.Calls = append(r.Calls, resolved(ms(7, 8), Done, "a"), resolved(ms(7, 8), Done, "b"))
	checked := &tally{}
	found := checked.checkHistories(t, r, filepath.Join(t.TempDir(), "seed"), time.Millisecond)
	if want := []string{"claims: unknown, the check was not finished within 1ms"}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	if got := checked.String(); !strings.Contains(got, "2 linearizable, 0 not, 1 unknown") {
		t.Errorf("counted %q", got)
	}
}
