//go:build race

package translate_test

// sampling is how many messages one is taken of where a test goes through all of them: the
// race detector finds no more in all than in some, and takes ten times as long. Without it
// they are all taken (.ci/unit).
const sampling = 16
