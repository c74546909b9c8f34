package stream_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// happenings puts what a seed says into a session's journal: durable and ephemeral events of
// many sizes, some of them twice or stamped early, notes, posted ones, and memory that is
// short. It is one of several that do so at once.
func happenings(s *session.Session, seed uint64, worker int) {
	rng := rand.New(rand.NewPCG(seed, uint64(worker)))
	for i := range 150 {
		eventType, ephemeral := "session.info", false
		switch rng.IntN(6) {
		case 0, 1, 2:
			eventType, ephemeral = "assistant.message_delta", true
		case 3:
			eventType, ephemeral = "session.idle", true // kept all the same
		case 4:
			eventType = "system.message"
		}
		size := rng.IntN(200)
		if rng.IntN(10) == 0 {
			size = rng.IntN(5000)
		}
		stamp := 100_000 + i*10
		if rng.IntN(10) == 0 {
			stamp += rng.IntN(5000)
		}
		text := fmt.Sprintf(`{"type":%q,"data":{"deltaContent":%q,"message":"m"},"ephemeral":%t,"id":"%08x-0000-4000-8000-%012x","timestamp":"2026-11-21T10:%02d:%02d.%03dZ","parentId":null}`,
			eventType, strings.Repeat("x", size), ephemeral, worker, i, stamp/60_000, stamp/1000%60, stamp%1000)
		for range 1 + rng.IntN(8)/7 {
			if rec, err := event.Parse([]byte(text)); err == nil {
				s.Ingest(rec, time.Now())
			}
		}
		switch rng.IntN(12) {
		case 0:
			s.Journal().Note("a note")
		case 1:
			s.Journal().Note(session.Restarted{})
		case 2:
			s.Journal().Post(session.TurnOver{Outcome: turn.Outcome{}}, journal.Position{})
		}
	}
}

// listed reads a session's whole journal, page by page. Between pages it does what between says.
func listed(r *bridgetest.Bridge, flt *bridgev1.EventFilter, rng *rand.Rand, between func()) (events []string, gaps []*bridgev1.Gap) {
	token := ""
	for {
		size := int32(stream.MinPageBytes + rng.IntN(4<<10))
		page, err := r.Events.ListEvents(r.T.Context(), &bridgev1.ListEventsRequest{SessionId: "s1", PageBytes: size, PageToken: token, Filter: flt})
		if err != nil {
			r.T.Errorf("a page: %v", err)
			return events, gaps
		}
		if n := len(page.GetEvents()); n > 1 && proto.Size(page) > int(size)+2<<10 { // its envelope aside
			r.T.Errorf("a page of %d bytes has %d, in %d events", size, proto.Size(page), n)
		}
		for _, e := range page.GetEvents() {
			events = append(events, fmt.Sprint(e))
		}
		if page.GetGap() != nil {
			gaps = append(gaps, page.GetGap())
		}
		if token = page.GetNextPageToken(); token == "" {
			return events, gaps
		}
		between()
	}
}

// lasting returns the events that a journal stores permanently.
func lasting(events []string) []string {
	return slices.DeleteFunc(slices.Clone(events), func(e string) bool {
		return strings.Contains(e, "ephemeral:true") && !strings.Contains(e, "session_idle:")
	})
}

// replayed is what a stream from the beginning of s1 gives, up to "the end".
func replayed(r *bridgetest.Bridge, filter *bridgev1.EventFilter) (events []string) {
	stream := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s1", Filter: filter}}})
	for len(events) == 0 || !strings.Contains(events[len(events)-1], "the end") {
		for _, e := range stream.Next().GetEvents().GetEvents() {
			events = append(events, fmt.Sprint(e))
		}
	}
	return events
}

// TestListEventsIsWhatStreamsGive: for any page size, and for any changes of the journal between pages, every
// durable event is listed once, in its place. Without changes the list equals a stream from the beginning.
func TestListEventsIsWhatStreamsGive(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			kept, err := store.Open(store.Config{Dir: t.TempDir(), Journals: journal.WriterConfig{Fsync: journal.FsyncAlways, SegmentBytes: 16 << 10}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = kept.Close() })
			r := bridgetest.New(t, fakecli.Script{}, bridgetest.Restarts, func(c *bridgetest.Options) {
				c.Directory, c.MaxEphemeralBytes, c.MaxMemoryBytes = kept, 16<<10, 64<<10
			})
			r.Create("s1")
			s, err := r.Store().Open(t.Context(), "s1")
			if err != nil {
				t.Fatal(err)
			}
			everything := &bridgev1.EventFilter{IncludeLarge: true}
			live := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s1", Filter: everything}}})
			var workers, lists sync.WaitGroup
			during := make([][]string, 2)
			for worker := range 2 {
				workers.Go(func() { happenings(s, seed, worker) })
				lists.Go(func() {
					during[worker], _ = listed(r, everything, rand.New(rand.NewPCG(seed, uint64(10+worker))), func() {})
				})
			}
			workers.Wait()
			lists.Wait()
			if _, err := r.Sessions.WriteLog(t.Context(), &bridgev1.WriteLogRequest{SessionId: "s1", Message: "the end"}); err != nil {
				t.Fatal(err)
			}
			var want []string
			for len(want) == 0 || !strings.Contains(want[len(want)-1], "the end") {
				for _, e := range live.Next().GetEvents().GetEvents() {
					want = append(want, fmt.Sprint(e))
				}
			}
			want = lasting(want)
			for i, list := range during {
				if got := lasting(list); len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
					t.Errorf("list %d, made meanwhile, has other durable events than the stream's first %d", i, len(got))
				}
			}
			rng := rand.New(rand.NewPCG(seed, 20))
			var list []string
			var gaps []*bridgev1.Gap
			for replay := replayed(r, everything); ; {
				list, gaps = listed(r, everything, rng, func() {})
				again := replayed(r, everything)
				if !slices.Equal(replay, again) { // memory that was short took some in between
					replay = again
					continue
				}
				if !slices.Equal(list, replay) {
					t.Errorf("a list has %d events, a stream %d", len(list), len(replay))
				}
				break
			}
			if got := lasting(list); !slices.Equal(got, want) {
				i := 0
				for i < len(got) && i < len(want) && got[i] == want[i] {
					i++
				}
				t.Errorf("a list has %d durable events, readers had %d; after %d there should be %.300q", len(got), len(want), i, want[i:min(i+2, len(want))])
			}
			if len(gaps) == 0 || gaps[0].GetReason() != bridgev1.GapReason_GAP_REASON_EPHEMERAL_LOST {
				t.Errorf("the gaps of a list are %v", gaps)
			}
			// A lack of memory between two pages drops no durable event.
			squeezed, _ := listed(r, everything, rng, func() { s.Journal().Note(strings.Repeat("n", 100)) })
			if got := lasting(squeezed); !slices.Equal(got, want) {
				t.Errorf("a list in short memory has %d durable events, readers had %d", len(got), len(want))
			}
		})
	}
}

// readings counts the reads of files.
type readings struct {
	segment.OS

	n atomic.Int64
}

// Open implements segment.FS.
func (r *readings) Open(name string, write bool) (segment.File, error) {
	f, err := r.OS.Open(name, write)
	return read{f, r}, err
}

// read is a file whose reads are counted.
type read struct {
	segment.File

	of *readings
}

// ReadAt implements io.ReaderAt.
func (r read) ReadAt(p []byte, off int64) (int, error) {
	r.of.n.Add(1)
	return r.File.ReadAt(p, off)
}

// A page is read from disk in large pieces, and not event by event: in a cluster each read is a request.
func TestPageTakesFewReads(t *testing.T) {
	t.Parallel()
	k := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored)
	k.Create("s1")
	s, err := k.Store().Open(t.Context(), "s1")
	if err != nil {
		t.Fatal(err)
	}
	happenings(s, 1, 0)
	if err := s.Journal().AwaitShown(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, files := filepath.Join(t.TempDir(), "data"), new(readings)
	k.CopyData(data)
	bridgetest.MoveEvents(t, data) // what is in memory takes no reads
	kept, err := store.Open(store.Config{Dir: data, Journals: journal.WriterConfig{FS: files}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() })
	next := bridgetest.New(t, fakecli.Script{}, bridgetest.Restarts, func(c *bridgetest.Options) { c.Directory = kept })
	before := files.n.Load()
	page, err := next.Events.ListEvents(t.Context(), &bridgev1.ListEventsRequest{
		SessionId: "s1", Filter: &bridgev1.EventFilter{IncludeLarge: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, events := files.n.Load()-before, len(page.GetEvents()); n > 10 || n == 0 || events < 50 {
		t.Errorf("a page of %d events took %d reads", events, n)
	}
}
