package store

import (
	"os"
	"path/filepath"
	"testing"
)

// What is stored of a tenant comes back; a damaged file is set aside, and does not prevent the next.
func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	const rows = `[{"day":"2026-11-23","turns":2}]`
	for _, tenant := range []string{"", "a", "A/../b"} {
		if got, err := s.Usage(tenant); got != nil || err != nil {
			t.Errorf("of %q before: %s, %v", tenant, got, err)
		}
		if err := s.SaveUsage(tenant, []byte(rows)); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Usage(tenant); string(got) != rows || err != nil {
			t.Errorf("of %q: %s, %v", tenant, got, err)
		}
	}
	for _, text := range []string{"", `{"id":"b"}`, `{"id":"a","sum":"00000000","state":[]}`} {
		if err := os.WriteFile(s.usageFile("a"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Usage("a"); got != nil || err == nil {
			t.Errorf("of %q: %s, %v", text, got, err)
		}
		if aside, err := os.ReadFile(s.usageFile("a") + ".damaged"); string(aside) != text || err != nil {
			t.Errorf("set aside: %q, %v", aside, err)
		}
		if got, err := s.Usage("a"); got != nil || err != nil {
			t.Errorf("then: %s, %v", got, err)
		}
	}
	if files, err := os.ReadDir(filepath.Join(dir, "usage")); err != nil || len(files) != 3 {
		t.Errorf("the files are %v, %v", files, err)
	}
}
