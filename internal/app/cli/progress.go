package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// progressBar is the log of a server on a terminal. Its last line shows how far the installation of the CLI is. It is safe
// for concurrent use.
type progressBar struct {
	out   io.Writer
	width int

	mu     sync.Mutex
	line   string
	before clibin.Progress
}

// Write implements io.Writer: the line stays below the log.
func (b *progressBar) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.line == "" {
		return b.out.Write(text)
	}
	if _, err := io.WriteString(b.out, clearLine+string(text)+b.line); err != nil {
		return 0, err
	}
	return len(text), nil
}

// clearLine goes to the beginning of the line and clears it.
const clearLine = "\r\x1b[K"

// report shows how far a stage is. It is an [app.Progress].
func (b *progressBar) report(p clibin.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.line = ""
	if !p.Done {
		b.line = terminal.Cut(progressLine(b.before, p), max(b.width-1, 1))
	}
	b.before = p
	_, _ = io.WriteString(b.out, clearLine+b.line)
}

// progressLine is a stage in a line, with the rate since the report before.
func progressLine(before, p clibin.Progress) string {
	elapsed := p.Elapsed.Round(time.Second)
	if p.Expected == 0 {
		return fmt.Sprintf("%s  %s", p.Text, elapsed)
	}
	const cells, mega = 16, 1 << 20
	full := int(min(p.Bytes*cells/p.Expected, cells))
	rate := 0.0
	if passed := p.Elapsed - before.Elapsed; passed > 0 {
		rate = float64(max(p.Bytes-before.Bytes, 0)) / passed.Seconds() / mega
	}
	return fmt.Sprintf("Copilot CLI [%s%s] %d of about %d MB on disk, %.1f MB/s, %s", strings.Repeat("#", full),
		strings.Repeat("-", cells-full), p.Bytes/mega, p.Expected/mega, rate, elapsed)
}
