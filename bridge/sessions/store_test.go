package sessions_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// refusing is a data directory whose outboxes refuse some writes.
type refusing struct {
	*store.Store
	distant              // without a writer the logs are those of the data directory
	refuses atomic.Int64 // how many of the next writes
	after   atomic.Int64 // so many writes
	forgets atomic.Bool  // states are not saved
}

// Save implements Directory.
func (r *refusing) Save(states ...backend.State) error {
	if r.forgets.Load() {
		return errors.New("no route to the storage")
	}
	return r.Store.Save(states...)
}

// Outbox implements Directory.
func (r *refusing) Outbox(id string) backend.Files { return refusingFiles{r.Store.Outbox(id), r} }

// Journal implements Directory.
func (r *refusing) Journal(id string, epoch uint64) (*journal.Disk, journal.Recovery, error) {
	if r.writer == nil {
		return r.Store.Journal(id, epoch)
	}
	return journal.OpenLog(remoteLogs{r.logs}, id, 1, epoch, id, r.writer)
}

type refusingFiles struct {
	backend.Files
	of *refusing
}

func (f refusingFiles) Save(state []byte) error {
	if f.of.after.Add(-1) < 0 && f.of.refuses.Add(-1) >= 0 {
		return errors.New("no route to the storage")
	}
	return f.Files.Save(state)
}

func (f refusingFiles) Write(name string, data []byte) error {
	if f.of.refuses.Add(-1) >= 0 {
		return errors.New("no route to the storage")
	}
	return f.Files.Write(name, data)
}

// distant are the parts of logs across a network.
type distant struct {
	writer *journal.Writer
	logs   *journal.Folders
}

func newDistant(t *testing.T) distant {
	t.Helper()
	w := journal.NewWriter(journal.WriterConfig{FS: &faultfs.FS{}})
	t.Cleanup(w.Close)
	logs, err := journal.OpenFolders(w, "journals", func(session string) string { return "logs/" + session })
	if err != nil {
		t.Fatal(err)
	}
	return distant{w, logs}
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
				d.distant = newDistant(t)
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

// In a cluster a prompt that the CLI has accepted is acknowledged when the storage has that, and not as one in memory only.
func TestAcceptedPromptWaitsForTheStorage(t *testing.T) {
	t.Parallel()
	kept, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() }) // after the bridge
	d := &refusing{Store: kept, distant: newDistant(t)}
	r := bridgetest.New(t, fakecli.Script{}, bridgetest.Restarts, func(c *bridgetest.Options) { c.Directory = d })
	r.Create("s1")
	const all = 1 << 30
	d.after.Store(1) // the first write has the prompt
	d.refuses.Store(all)
	answered := make(chan *bridgev1.SendResponse, 1)
	go func() {
		out, err := r.Turns.Send(t.Context(), bridgetest.Repeatable("s1", "hi"))
		if err != nil {
			t.Error(err)
		}
		answered <- out
	}()
	bridgetest.Eventually(t, "attempts to store the CLI's answer", func() bool { return d.refuses.Load() < all-2 })
	select {
	case out := <-answered:
		t.Errorf("the prompt is acknowledged, and not stored: %v", out)
	default:
	}
	d.refuses.Store(0)
	if out := <-answered; out.GetInMemoryOnly() || out.GetMessageId() == "" {
		t.Errorf("the call returns %v", out)
	}
}

// A caller in a cluster is told that the storage does not take the state of a session; the storage has it later.
func TestUnsavedStateIsTold(t *testing.T) {
	t.Parallel()
	kept, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() }) // after the bridge
	d := &refusing{Store: kept, distant: newDistant(t)}
	r := bridgetest.New(t, fakecli.Script{}, bridgetest.Restarts, func(c *bridgetest.Options) { c.Directory = d })
	r.Create("s1")
	d.forgets.Store(true)
	set := &bridgev1.UpdateLabelsRequest{SessionId: "s1", Set: map[string]string{"a": "b"}}
	if _, err := r.Sessions.UpdateLabels(t.Context(), set); fault.ReasonOf(err) != fault.SessionUnavailable {
		t.Errorf("labels that are not stored: %v", err)
	}
	d.forgets.Store(false)
	bridgetest.Eventually(t, "the labels to be stored", func() bool {
		state, err := kept.Session(session.Key("", "s1"))
		return err == nil && strings.Contains(string(state), `"a":"b"`)
	})
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
	d := &refusing{Store: kept, distant: newDistant(t)}
	r := bridgetest.New(t, bridgetest.Hanging, bridgetest.Restarts, func(c *bridgetest.Options) { c.Directory = d })
	r.Create("s1")
	r.Ask("s1", "hi")
	r.Begin("s1", "long")
	r.Send(bridgetest.Repeatable("s1", "queued"))
	const all = 1 << 30
	d.refuses.Store(all)
	r.FakeCLI().Kill()
	bridgetest.Eventually(t, "attempts to store the delivery", func() bool { return d.refuses.Load() < all-4 })
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

// onDisk is a bridge whose data directory is on a disk in memory.
type onDisk struct {
	*bridgetest.Bridge
	home, data string
	disk       *faultfs.FS
	directory  *store.Store
}

func openOnDisk(t *testing.T, home, data string, disk *faultfs.FS) *onDisk {
	t.Helper()
	if err := disk.MkdirAll(filepath.Join(data, "sessions")); err != nil {
		t.Fatal(err)
	}
	kept, err := store.Open(store.Config{Dir: data, Journals: journal.WriterConfig{FS: disk}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() }) // after the bridge
	l := bridgetest.New(t, fakecli.Script{}, bridgetest.Home(home), func(c *bridgetest.Options) { c.Directory = kept })
	return &onDisk{l, home, data, disk, kept}
}

// fullAfter is the next life of the bridge, which is killed now, on a disk that is full.
func (o *onDisk) fullAfter(t *testing.T) *onDisk {
	t.Helper()
	before, next, data := o.disk.Restart(false), &faultfs.FS{}, t.TempDir()
	for _, name := range before.Names() {
		path := data + strings.TrimPrefix(name, o.data)
		if err := next.MkdirAll(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		next.Put(path, slices.Clone(before.Content(name)))
	}
	o.FakeCLI().Kill()
	next.Room(0)
	return openOnDisk(t, o.home, data, next)
}

// turns are the messages of the session with their positions, by a stream from its beginning.
func (o *onDisk) turns(n int) (texts []string, at []*bridgev1.Position) {
	o.T.Helper()
	s := o.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	defer s.Stop()
	for len(texts) < n {
		for _, e := range s.Next().GetEvents().GetEvents() {
			if m := e.GetEvent().GetUserMessage(); m != nil {
				texts, at = append(texts, m.GetContent()), append(at, e.GetPosition())
			}
		}
	}
	return texts, at
}

// A bridge starts twice on a full disk: readers receive the events of the restored sessions, no position is
// used twice, and the events are written when there is room.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	o := openOnDisk(t, t.TempDir(), t.TempDir(), &faultfs.FS{})
	o.Create("s1")
	o.Ask("s1", "turn 1")
	_, before := o.turns(1)
	seen := map[string]string{}
	for life := 2; life <= 3; life++ {
		o = o.fullAfter(t)
		if out := o.Ask("s1", fmt.Sprint("turn ", life)); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
			t.Fatalf("on a full disk the turn is %v", out)
		}
		texts, at := o.turns(life) // what the disk did not take, the CLI's history has
		for i, p := range at {
			if p.GetEpoch() != before[0].GetEpoch() || texts[i] != fmt.Sprint("turn ", i+1) {
				t.Errorf("life %d: %q is at %v", life, texts[i], p)
			}
			if i == life-1 && seen[fmt.Sprint(p)] != "" {
				t.Errorf("life %d: %q is at %v, as was %q", life, texts[i], p, seen[fmt.Sprint(p)])
			}
			seen[fmt.Sprint(p)] = texts[i]
		}
		if len(o.directory.Degraded()) == 0 {
			t.Error("nobody is told that the disk is full")
		}
	}
	o.disk.Room(-1)
	bridgetest.Eventually(t, "the journal to be on disk", func() bool { return len(o.directory.Degraded()) == 0 })
}

// A full disk takes no prompts: they are acknowledged all the same, and the answer says so.
func TestPromptOnAFullDisk(t *testing.T) {
	t.Parallel()
	o := openOnDisk(t, t.TempDir(), t.TempDir(), &faultfs.FS{})
	o.Create("s1")
	if out := o.Send(bridgetest.Repeatable("s1", "hi")); out.GetInMemoryOnly() {
		t.Error("a disk with room does not have the prompt")
	}
	o.disk.Room(0)
	if out := o.Send(bridgetest.Repeatable("s1", "on")); !out.GetInMemoryOnly() || out.GetMessageId() == "" {
		t.Errorf("on a full disk the answer is %v", out)
	}
	s, err := o.Store().Open(t.Context(), "s1")
	if err != nil || s.Snapshot().GetStorageProblem() == "" {
		t.Errorf("the session does not say what is wrong, %v", err)
	}
	o.disk.Room(-1)
}
