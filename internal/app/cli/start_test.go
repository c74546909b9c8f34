package cli

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// The program initializes without a garbage collection: its packages allocate little that does not stay.
func TestNoCollectionBeforeMain(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=gctrace=1", "GOGC=100")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if found := regexp.MustCompile(`(?m)^gc \d+ @.*$`).FindAll(out, -1); len(found) > 0 {
		t.Errorf("%d collections during the start, the first: %s", len(found), found[0])
	}
}
