//go:build !race

package app

// walkEvery is the share of the CLI's own rpcs that the walk calls: all.
const walkEvery = 1
