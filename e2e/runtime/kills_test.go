package runtime

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// Kills of TestAcknowledgedPrompts: how many in a test run, and how many in one life of the
// test's data directory.
const (
	killsInTest  = 4
	killsInBatch = 4
	// killsEnv and killsSeedEnv change how many, and where they begin.
	killsEnv, killsSeedEnv = "KILLS", "KILLS_SEED"
	// killsOutEnv names the file for the summary.
	killsOutEnv = "KILLS_OUT"
)

// TestAcknowledgedPrompts kills the server, its CLI or both within 100 ms after prompts were acknowledged, and checks
// that each prompt is in the CLI's history exactly once, or its loss was reported to every reader and to every repeated
// request.
func TestAcknowledgedPrompts(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	count, seed := number(t, killsEnv, killsInTest), number(t, killsSeedEnv, 1)
	var all killCount
	t.Run("batches", func(t *testing.T) {
		for begin := 0; begin < count; begin += killsInBatch {
			t.Run(strconv.Itoa(seed+begin), func(t *testing.T) {
				t.Parallel()
				if all.failed() {
					t.SkipNow()
				}
				k := newKills(t, &all)
				for i := begin; i < min(begin+killsInBatch, count); i++ {
					k.round(rand.New(rand.NewPCG(uint64(seed+i), 0)), seed+i)
					all.report(t)
				}
			})
		}
	})
	t.Log(all.String())
}

// report writes the results of the kills so far, if a file for that is set.
func (c *killCount) report(t *testing.T) {
	if file := os.Getenv(killsOutEnv); file != "" {
		if err := os.WriteFile(file, []byte(c.String()+"\n"), 0o600); err != nil {
			t.Error(err)
		}
	}
}

func number(t *testing.T, env string, otherwise int) int {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", env, err)
	}
	return n
}

// killCount is what kills came to.
type killCount struct {
	mu                                 sync.Mutex
	kills                              [3]int // by victim
	prompts                            int
	once, resent, told, again, unasked int
	bad                                int
}

func (c *killCount) add(change func(*killCount)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

func (c *killCount) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bad > 20
}

func (c *killCount) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d kills (%d of the server, %d of the CLI, %d of both), %d acknowledged prompts: %d in the "+
		"history once (%d of them given to the CLI again, %d of those after the model had been asked), "+
		"%d lost and told (%d of them never asked of the model), %d violations",
		c.kills[0]+c.kills[1]+c.kills[2], c.kills[0], c.kills[1], c.kills[2], c.prompts, c.once, c.resent, c.again,
		c.told, c.unasked, c.bad)
}
