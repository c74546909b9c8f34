//go:build race

package app

// walkEvery is the share of the CLI's own rpcs that the walk calls under the race detector: one handler serves all.
const walkEvery = 8
