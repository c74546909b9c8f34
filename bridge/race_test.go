//go:build race

package bridge

// poolSlack is the number of extra allocations per event under the race detector, which makes sync.Pool drop
// some of its items.
const poolSlack = 1.5
