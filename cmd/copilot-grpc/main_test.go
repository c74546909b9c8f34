package main

import "testing"

func TestReleaseOf(t *testing.T) {
	t.Parallel()
	for module, want := range map[string]string{
		"": "dev", "(devel)": "dev", "v0.1.0": "0.1.0", "v0.2.0-rc.1": "0.2.0-rc.1", "v0.1.0+dirty": "0.1.0+dirty",
		"v0.0.0-20261128234929-92faa8080123": "dev", "v0.1.1-0.20261128234929-92faa8080123+dirty": "dev",
		"v0.2.0-rc.1.0.20261128234929-92faa8080123": "dev",
	} {
		if got := releaseOf(module); got != want {
			t.Errorf("%q is release %q, want %q", module, got, want)
		}
	}
}
