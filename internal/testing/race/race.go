// Package race lets tests do less under the race detector, which takes up to twenty times the CPU and finds no more in
// all repetitions than in some.
package race

// Sample returns n under the race detector and 1 without it: a test takes one of Sample(n) repetitions.
func Sample(n int) int {
	if Enabled {
		return n
	}
	return 1
}
