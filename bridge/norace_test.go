//go:build !race

package bridge

// poolSlack is the share of events that may find the pool of buffers empty.
const poolSlack = 0.2
