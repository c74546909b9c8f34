// Package backendtest tests implementations of package backend. Each function runs the tests of
// one interface as subtests.
package backendtest

import "testing"

// check is one test: it returns what is wrong, and fails t only if it cannot test anything.
type check[B any] struct {
	name string
	run  func(t testing.TB, open func(testing.TB) B) error
}

func runAll[B any](t *testing.T, checks []check[B], open func(testing.TB) B) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := c.run(t, open); err != nil {
				t.Error(err)
			}
		})
	}
}
