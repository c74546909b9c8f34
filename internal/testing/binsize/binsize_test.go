package binsize

import (
	"debug/elf"
	"os"
	"runtime"
	"strings"
	"testing"
)

// The test's own program is stripped by go test: its file has the size that is computed from its sections.
func TestStripped(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the format ELF is Linux's")
	}
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if f.Section(".symtab") != nil {
		t.Skip("this test was built with symbols")
	}
	stat, err := os.Stat("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	const rest = 4 << 10 // the names of sections, and alignment
	if got := stripped(f); got > stat.Size() || got < stat.Size()-rest {
		t.Errorf("the sections have %d bytes, and the file %d", got, stat.Size())
	}
	if _, err := Read("/proc/self/exe"); err == nil || !strings.Contains(err.Error(), "-ldflags -s") {
		t.Errorf("a program without symbols: %v", err)
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	const std = "standard library: the rest, runtime"
	for symbol, want := range map[string]string{
		module + "gen/go/copilot/cli/v1.(*Plan).Reset":                      "messages of copilot.cli.v1",
		module + "bridge.New":                                               "bridge",
		module + "bridge/journal.(*Journal).Append":                         "bridge",
		"github.com/nats-io/nats%2ego.Connect":                              "NATS, the cluster",
		"slices.pdqsortCmpFunc[go.shape.*github.com/nats-io/nats%2ego.Msg]": std,
		"type:.eq.net/http.Cookie":                                          std,
		"net/http.(*Server).Serve":                                          "standard library: net",
		"net/http/pprof.Index":                                              "profiles",
		"vendor/golang.org/x/crypto/chacha20.New":                           "standard library: crypto",
		"rsc.io/qr.Encode":                                                  "other modules",
		"main.main":                                                         std,
	} {
		if got := group(packageOf(symbol)); got != want {
			t.Errorf("%s is in %q, want %q", symbol, got, want)
		}
	}
}
