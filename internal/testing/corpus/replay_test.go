package corpus_test

import (
	_ "embed"
	"os"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/corpus"
)

//go:embed testdata/drift.txt
var knownDrift string

// TestRecordedTraffic replays what the end-to-end tests have recorded. .ci/e2e
// runs it after them; it is the one test that sees the CLI's own words.
func TestRecordedTraffic(t *testing.T) {
	dir := os.Getenv(corpus.DirEnv)
	if dir == "" {
		t.Skip("NOT RUN: " + corpus.DirEnv + " is not set")
	}
	checkReplay(t, dir)
}

// checkReplay demands that everything survives, and that all that is not typed
// is known.
func checkReplay(t *testing.T, dir string) *corpus.Report {
	t.Helper()
	report, err := corpus.Replay(dir)
	if err != nil {
		t.Fatal(err)
	}
	var summary strings.Builder
	if err := report.Write(&summary); err != nil {
		t.Fatal(err)
	}
	t.Logf("replayed traffic:\n%s", &summary)
	for _, failure := range report.Failures {
		t.Errorf("does not survive: %s", failure)
	}
	unknown, err := report.Unknown(knownDrift)
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range unknown {
		t.Errorf("new drift: %s (%d times): type it by a row in internal/gen/schemagen/overlay, "+
			"or list it with a reason in internal/testing/corpus/testdata/drift.txt", place, report.Drift[place])
	}
	return report
}
