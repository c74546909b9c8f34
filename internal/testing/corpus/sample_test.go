package corpus_test

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/corpus"
)

//go:embed testdata/sample.txt
var sample string

// script is a CLI that sends given messages, and ignores the ones it gets.
type script struct {
	io.Reader
	heard int
}

func (s *script) Write(p []byte) (int, error) {
	s.heard += len(p)
	return len(p), nil
}

func (s *script) Close() error { return nil }

// directions frames the messages of a sample that go either way.
func directions(text string) (to, from string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if body, ok := strings.CutPrefix(line, "> "); ok {
			to += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
		} else if body, ok := strings.CutPrefix(line, "< "); ok {
			from += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
		}
	}
	return to, from
}

// record sends a sample through a Recorder and returns where it was recorded.
func record(t *testing.T, text string, limit int64) string {
	t.Helper()
	dir := t.TempDir()
	to, from := directions(text)
	peer := &script{Reader: strings.NewReader(from)}
	recorder := corpus.Record(runtime.InProcess(func(context.Context, runtime.Spec) (io.ReadWriteCloser, error) {
		return peer, nil
	}), dir, limit)
	transport, err := recorder.Start(t.Context(), runtime.Spec{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(transport, to); err != nil {
		t.Fatal(err)
	}
	read, err := io.ReadAll(transport)
	if err != nil {
		t.Fatal(err)
	}
	if err := transport.Close(); err != nil {
		t.Fatal(err)
	}
	if string(read) != from || peer.heard != len(to) {
		t.Fatalf("recording changes the traffic: %d of %d bytes read, %d of %d written", len(read), len(from),
			peer.heard, len(to))
	}
	return dir
}

func TestSample(t *testing.T) {
	t.Parallel()
	report, err := corpus.Replay(record(t, sample, corpus.DefaultLimit))
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range report.Failures {
		t.Errorf("does not survive: %s", failure)
	}
	if want := map[string]int{"params": 7, "results": 5, "events": 3}; !maps.Equal(report.Values, want) {
		t.Errorf("values = %v, want %v", report.Values, want)
	}
	if report.Errors != 1 || report.Runtimes != 1 || report.Frames != 18 {
		t.Errorf("%d errors, %d runtimes, %d frames", report.Errors, report.Runtimes, report.Frames)
	}
	var places []string
	for place, n := range report.Drift {
		places = append(places, fmt.Sprintf("%d × %s", n, place))
	}
	slices.Sort(places)
	if want := []string{
		"1 × AssistantMessageDeltaData.deltaContent: misfit", // a surrogate without its partner
		"1 × SessionEvent.garden.dug: unlisted",
		"1 × SessionEvent.timestamp: misfit", // without the CLI's milliseconds
		"1 × SessionEvent.weather: undeclared",
		"1 × SessionModeServiceGetResponse: unlisted",
		"1 × method garden.water: unlisted",
	}; !slices.Equal(places, want) {
		t.Errorf("drift = %s\nwant %s", strings.Join(places, "\n"), strings.Join(want, "\n"))
	}
}

// many is a Transport that gives further connections.
type many struct {
	runtime.Transport
	next *script
}

func (m many) Another(context.Context) (io.ReadWriteCloser, error) { return m.next, nil }

// manyRunner is a Runner of such Transports.
type manyRunner struct {
	runtime.InProcess
	next *script
}

func (r manyRunner) Start(ctx context.Context, spec runtime.Spec) (runtime.Transport, error) {
	t, err := r.InProcess.Start(ctx, spec)
	return many{t, r.next}, err
}

// TestFurtherConnections: a runtime that takes several connections does so when it is
// recorded too, and one that does not still does not.
func TestFurtherConnections(t *testing.T) {
	t.Parallel()
	type multiplexed interface {
		Another(ctx context.Context) (io.ReadWriteCloser, error)
	}
	dir := t.TempDir()
	to, from := directions(sample)
	silent := runtime.InProcess(func(context.Context, runtime.Spec) (io.ReadWriteCloser, error) {
		return &script{Reader: strings.NewReader("")}, nil
	})
	spec := runtime.Spec{Logger: slog.New(slog.DiscardHandler)}
	one, err := corpus.Record(silent, t.TempDir(), corpus.DefaultLimit).Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := one.(multiplexed); ok {
		t.Error("recording a runtime of one connection makes it one of several")
	}
	further := &script{Reader: strings.NewReader(from)}
	transport, err := corpus.Record(manyRunner{silent, further}, dir, corpus.DefaultLimit).Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	multi, ok := transport.(multiplexed)
	if !ok {
		t.Fatal("the recorded runtime takes one connection only")
	}
	conn, err := multi.Another(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, to); err != nil {
		t.Fatal(err)
	}
	if read, err := io.ReadAll(conn); err != nil || string(read) != from || further.heard != len(to) {
		t.Errorf("%d bytes read (%v), %d written", len(read), err, further.heard)
	}
	for _, c := range []io.Closer{conn, transport, one} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	report, err := corpus.Replay(dir)
	if err != nil || report.Frames != 18 || report.Runtimes != 2 {
		t.Errorf("recorded: %+v, %v", report, err)
	}
}

// TestResults: answers are found by the method that they answer, errors left out.
func TestResults(t *testing.T) {
	t.Parallel()
	results, err := corpus.Results(record(t, `
> {"jsonrpc":"2.0","id":1,"method":"a.get","params":{}}
> {"jsonrpc":"2.0","id":2,"method":"b.get","params":{}}
< {"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no"}}
< {"jsonrpc":"2.0","id":1,"result":{"x": 1.0}}
> {"jsonrpc":"2.0","id":3,"method":"a.get","params":{}}
< {"jsonrpc":"2.0","id":3,"result":null}`, corpus.DefaultLimit))
	if got := fmt.Sprintf("%s", results); err != nil || got != `map[a.get:[{"x": 1.0} null]]` {
		t.Errorf("results = %s, %v", got, err)
	}
}

func TestUnknownDrift(t *testing.T) {
	t.Parallel()
	report := &corpus.Report{Drift: map[corpus.Place]int{
		{Message: "A", Member: "b", Why: corpus.Undeclared}: 2,
		{Message: "C", Why: corpus.Whole}:                   1,
	}}
	for _, test := range []struct{ name, list, want, err string }{
		{name: "nothing known", want: "A.b: undeclared C: whole"},
		{name: "one known", list: "# what\n\nA.b: undeclared # our own\n", want: "C: whole"},
		{name: "another reason is another place", list: "A.b: absent # x\nC: whole # y", want: "A.b: undeclared"},
		{name: "no reason", list: "A.b: undeclared", err: "row 1 gives no reason"},
		{name: "empty reason", list: "A.b: undeclared # ", err: "row 1 gives no reason"},
		{name: "twice", list: "C: whole # x\nC: whole # y", err: "row 2 is there twice"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			places, err := report.Unknown(test.list)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error = %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Trim(fmt.Sprint(places), "[]"); got != test.want {
				t.Errorf("unknown = %q, want %q", got, test.want)
			}
		})
	}
}

// TestLimit: a recording that ends within a message is read up to there.
func TestLimit(t *testing.T) {
	t.Parallel()
	dir := record(t, sample, 1)
	report, err := corpus.Replay(dir)
	if err != nil {
		t.Fatal(err)
	}
	if report.Frames == 0 || report.Frames >= 18 {
		t.Errorf("%d messages recorded beyond the limit", report.Frames)
	}
	name, err := filepath.Glob(filepath.Join(dir, "*.to"))
	if err != nil || len(name) != 1 {
		t.Fatal(name, err)
	}
	text, err := os.ReadFile(name[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name[0], text[:len(text)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	cut, err := corpus.Replay(dir)
	if err != nil || cut.Frames != report.Frames-1 {
		t.Errorf("a message that was cut off: %d of %d messages, %v", cut.Frames, report.Frames, err)
	}
}

func TestBadRecordings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, from, to, want string }{
		{"nothing", "", "", "no traffic"},
		{"no header", "hello\r\n\r\n", "", "header"},
		{"negative length", "", "Content-Length: -1\r\n\r\n", "header"},
		{"no JSON", "Content-Length: 2\r\n\r\n{]", "", "malformed JSON"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for suffix, text := range map[string]string{".from": test.from, ".to": test.to} {
				if err := os.WriteFile(filepath.Join(dir, "1"+suffix), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := corpus.Replay(dir); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q", err, test.want)
			}
		})
	}
}
