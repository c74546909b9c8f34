//go:build race

package bridge

// poolSlack is what the race detector adds to the allocations of an event: it makes
// sync.Pool forget some of what it is given.
const poolSlack = 1.5
