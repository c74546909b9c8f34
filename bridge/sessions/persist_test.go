package sessions_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// refusing is a data directory whose outboxes refuse some writes.
type refusing struct {
	*store.Store
	writer  *journal.Writer // of logs across a network; nil for those of the data directory
	refuses atomic.Int64    // how many of the next writes
}

// Outbox implements Directory.
func (r *refusing) Outbox(id string) backend.Files { return refusingFiles{r.Store.Outbox(id), r} }

// Journal implements Directory.
func (r *refusing) Journal(id string, epoch uint64) (*journal.Disk, journal.Recovery, error) {
	if r.writer == nil {
		return r.Store.Journal(id, epoch)
	}
	logs := remoteLogs{journal.NewFolders(r.writer, func(session string) string { return "logs/" + session })}
	return journal.OpenLog(logs, id, 1, epoch, id, r.writer)
}

type refusingFiles struct {
	backend.Files
	of *refusing
}

func (f refusingFiles) Append(name string, size int64, data []byte) error {
	if f.of.refuses.Add(-1) >= 0 {
		return errors.New("no route to the storage")
	}
	return f.Files.Append(name, size, data)
}

func (f refusingFiles) Write(name string, data []byte) error {
	if f.of.refuses.Add(-1) >= 0 {
		return errors.New("no route to the storage")
	}
	return f.Files.Write(name, data)
}

// remoteLogs are logs that say that they are on the other side of a network.
type remoteLogs struct{ backend.Logs }

func (l remoteLogs) Open(session string, term, epoch uint64, visit func(n uint64, body []byte) error) (
	backend.Log, backend.Recovered, error,
) {
	log, found, err := l.Logs.Open(session, term, epoch, visit)
	return remoteLog{log}, found, err
}

type remoteLog struct{ backend.Log }

func (remoteLog) Remote() bool { return true }

// A prompt that the storage refused is acknowledged where the data directory is the process's own, and the answer says
// that it is in memory only, although the storage works again by then. In a cluster, where another replica would go on
// without the prompt, the call fails before the CLI has it.
func TestPromptThatIsNotStored(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 1<<20) // it is stored before the CLI has it
	for name, test := range map[string]struct {
		remote bool
		prompt string
	}{"data directory": {false, "hi"}, "data directory, large": {false, large}, "cluster": {true, "hi"}} {
		remote := test.remote
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept, err := store.Open(store.Config{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = kept.Close() }) // after the bridge
			d := &refusing{Store: kept}
			if remote {
				d.writer = journal.NewWriter(journal.WriterConfig{FS: &faultfs.FS{}})
				t.Cleanup(d.writer.Close)
			}
			r := bridgetest.New(t, fakecli.Script{}, bridgetest.Restarts, func(c *bridgetest.Options) { c.Directory = d })
			r.Create("s1")
			d.refuses.Store(1)
			q := bridgetest.Repeatable("s1", "hi")
			q.Prompt.Text = test.prompt
			out, err := r.Turns.Send(t.Context(), q)
			switch {
			case remote && fault.ReasonOf(err) != fault.SessionUnavailable:
				t.Errorf("the call returns %v, %v", out, err)
			case !remote && (err != nil || !out.GetInMemoryOnly()):
				t.Errorf("the call returns %v, %v", out, err)
			}
			if !remote {
				return
			}
			if out := r.Send(q); out.GetInMemoryOnly() {
				t.Error("the repetition is in memory only")
			}
			r.Ask("s1", "on")
			if got := r.Conversation("s1"); len(got) != 2 {
				t.Errorf("the conversation has %q", got)
			}
		})
	}
}

// In a cluster a prompt of an ended process is sent again when the storage has that, and not before: the next replica
// would send it once more.
func TestUnstoredDeliveryWaits(t *testing.T) {
	t.Parallel()
	kept, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() }) // after the bridge
	d := &refusing{Store: kept, writer: journal.NewWriter(journal.WriterConfig{FS: &faultfs.FS{}})}
	t.Cleanup(d.writer.Close)
	r := bridgetest.New(t, bridgetest.Hanging, bridgetest.Restarts, func(c *bridgetest.Options) { c.Directory = d })
	r.Create("s1")
	r.Ask("s1", "hi")
	r.Begin("s1", "long")
	r.Send(bridgetest.Repeatable("s1", "queued"))
	const all = 1 << 30
	d.refuses.Store(all)
	r.FakeCLI().Kill()
	bridgetest.Eventually(t, "attempts to store the delivery", func() bool { return d.refuses.Load() < all-8 })
	for _, e := range r.FakeCLI().Log() {
		if e.Type == "session.send" && strings.Contains(string(e.Body), "queued") && len(r.Processes()) > 1 {
			t.Error("the CLI has the prompt, and the storage does not know that")
			break
		}
	}
	d.refuses.Store(0)
	bridgetest.Eventually(t, "the prompt", func() bool { return slices.Contains(r.Conversation("s1"), "queued") })
	if got := r.Conversation("s1"); len(got) != 3 {
		t.Errorf("the conversation has %q", got)
	}
}
