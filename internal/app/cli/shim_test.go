package cli

import (
	"slices"
	"strings"
	"testing"
)

// TestForeignFlags: what is the CLI's own on the command line of the shim.
func TestForeignFlags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, args, ours, foreign string }{
		{"none", "--headless --stdio --log-level error", "--headless --stdio --log-level error", ""},
		{"a switch", "--yolo --headless --stdio", "--headless --stdio", "--yolo"},
		{"a value", "--stdio --log-dir /var/log --port 1", "--stdio --port 1", "--log-dir /var/log"},
		{"several values", "--deny-tool shell write --stdio", "--stdio", "--deny-tool shell write"},
		{"a value behind =", "--mode=plan --grace=1s", "--grace=1s", "--mode=plan"},
		{"at the end", "--stdio --add-dir", "--stdio", "--add-dir"},
		{"our value is like a flag", "--token --yolo --stdio", "--token --yolo --stdio", ""},
		{"no flag", "--stdio serve --yolo", "--stdio serve --yolo", ""},
		{"help", "--help --yolo", "--help --yolo", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var o shimOptions
			f := newFlags("shim", "", "")
			o.register(f)
			ours, foreign := f.foreign(strings.Fields(tc.args))
			if !slices.Equal(ours, strings.Fields(tc.ours)) || !slices.Equal(foreign, strings.Fields(tc.foreign)) {
				t.Errorf("foreign(%q) = %q, %q, want %q, %q", tc.args, ours, foreign, tc.ours, tc.foreign)
			}
		})
	}
}
