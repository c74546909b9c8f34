//go:build !race

package translate_test

// sampling is how many messages one is taken of where a test goes through all of them.
const sampling = 1
