package schemagen

import (
	"strings"
	"testing"
)

// TestDeadRows: with schemas that have nothing of what the tables name, every table
// fails the run by its rows.
func TestDeadRows(t *testing.T) {
	t.Parallel()
	m := modelOf(t, "1.0.1", "", "")
	err := deadRows(m, map[string]bool{})
	if err == nil {
		t.Fatal("rows that match nothing pass")
	}
	for _, want := range []string{
		"rename " + renames[0].Path, "presence " + presences[0].Path,
		"null " + nullings[0].Path,
		"secret " + secretRows[0].Path, "params " + paramsOverrides[0].Path,
		"member " + memberNames[0].Path, "rpc " + rpcNames[0].Path, "read " + reads[0],
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not told: %v", want, err)
		}
	}
}
