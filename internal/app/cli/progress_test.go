package cli

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
)

// The line stays below the log, and is gone at the end.
func TestProgressBar(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &progressBar{out: &out, width: 80}
	stage := func(seconds int, megabytes int64) clibin.Progress {
		return clibin.Progress{
			Elapsed: time.Duration(seconds) * time.Second, Bytes: megabytes << 20, Expected: 190 << 20,
		}
	}
	b.report(stage(0, 0))
	b.report(stage(1, 95))
	fmt.Fprintln(b, "a line of the log")
	b.report(stage(3, 200))
	b.report(clibin.Progress{Elapsed: 4 * time.Second, Done: true, Err: errors.New("x")})
	fmt.Fprintln(b, "another one")
	b.report(clibin.Progress{Text: "unpacking", Elapsed: 1100 * time.Millisecond})
	const half = "Copilot CLI [########--------] 95 of about 190 MB on disk, 95.0 MB/s, 1s"
	want := "\r\x1b[KCopilot CLI [----------------] 0 of about 190 MB on disk, 0.0 MB/s, 0s" +
		"\r\x1b[K" + half + "\r\x1b[Ka line of the log\n" + half +
		"\r\x1b[KCopilot CLI [################] 200 of about 190 MB on disk, 52.5 MB/s, 3s" +
		"\r\x1b[Kanother one\n\r\x1b[Kunpacking  1s"
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
