package session

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// Readers are told once of a turn that the end of the bridge has cut off, also if a load behind that has added events of the
// turn from the CLI's history.
func TestCutOffTurnIsToldOnce(t *testing.T) {
	t.Parallel()
	fs, saved := &faultfs.FS{}, []byte(nil)
	var told journal.Position
	for life := range 4 {
		w := journal.NewWriter(journal.WriterConfig{FS: fs})
		log, _, err := journal.OpenDisk("s1", 7, w)
		if err != nil {
			t.Fatal(err)
		}
		s := New(Config{ID: "s1", Host: &stock{fixture: &fixture{ctx: t.Context()}, rt: &puppet{}}, Epoch: 7, Log: log,
			Encode: func(*journal.Record, journal.Form) []byte { return nil }})
		if saved == nil {
			s.loader.state = Loaded
			s.play("user.message", user("m1"))
		} else if err := s.Restore(saved, nil, nil, nil); err != nil {
			t.Fatal(err)
		}
		marks := &s.ingester.Known
		switch life {
		case 1:
			told = marks.InterruptedAt
			if told == (journal.Position{}) {
				t.Error("nobody is told")
			}
			s.play("assistant.turn_start", "")
			if err := s.journal.AwaitShown(t.Context()); err != nil {
				t.Fatal(err)
			}
			marks.TurnEnd = s.journal.Last() // as after a load
		case 2, 3:
			if marks.InterruptedAt != told {
				t.Errorf("in life %d readers are told at %v, and were told at %v", life, marks.InterruptedAt, told)
			}
		}
		saved = savedText(s, nil, nil)
		if err := s.journal.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Close()
	}
}

// Readers who were told of the end of a turn are not told again by the next process, also if it takes the session over right
// behind a load that has begun an epoch, of which the journal had not reserved a number.
func TestTurnEndsBeforeANewEpoch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testTurnEndsBeforeANewEpoch)
}

func testTurnEndsBeforeANewEpoch(t *testing.T) {
	p := &puppet{answer: func(method string) (string, error) {
		if method == "session.getMessages" {
			return `{"events":[` + firstMessage + `,` + strings.Replace(firstMessage, "0001", "0002", 1) + `]}`, nil
		}
		return `{}`, nil
	}}
	h := &stalling{stock: &stock{fixture: &fixture{ctx: t.Context()}, rt: p}, release: func() {}}
	open := func() (*Session, *journal.Writer) {
		w := journal.NewWriter(journal.WriterConfig{FS: &h.disk})
		log, _, err := journal.OpenDisk("s1", 7, w)
		if err != nil {
			t.Fatal(err)
		}
		return New(Config{ID: "s1", Host: h, Epoch: 7, Log: log, Encode: func(*journal.Record, journal.Form) []byte { return nil }}), w
	}
	s, w := open()
	s.loader.state, s.ingester.Known.HasHistory = Unloaded, true
	s.had(strings.Replace(firstMessage, "0001", "0009", 1), false)
	s.update(func() { s.turns.lose(lost) })
	if err := s.journal.AwaitShown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.loader.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.journal.Last().Epoch == 7 {
		t.Error("the load begins no epoch, although the history lacks a message")
	}
	saved := savedText(s, nil, nil)
	h.release()
	if err := s.journal.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Close()
	next, w := open()
	defer w.Close()
	if err := next.Restore(saved, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if marks := next.ingester.Known; next.journal.Last().Epoch != s.journal.Last().Epoch || marks.InterruptedAt.Seq > 0 {
		t.Errorf("in the epoch %d, readers are told at %v", next.journal.Last().Epoch, marks.InterruptedAt)
	}
	if err := next.journal.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The end of a session's use ends its turn. If a process dies after it has stored that and before it has told readers, the next
// one tells them, once.
func TestEndOfUseIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ends func(s *Session)
		want []int // how many ends the following processes tell
	}{
		"the process dies before it tells": {func(s *Session) { s.loader.setEnding(true) }, []int{1, 0, 0}},
		"it dies behind its runtime": {func(s *Session) {
			s.loader.RuntimeLost(s.loader.runtime, errors.New("killed"))
			s.loader.setEnding(true)
		}, []int{1, 0, 0}},
		"it has told": {func(s *Session) { s.loader.end(Disconnected) }, []int{0, 0}},
	} {
		fs, reader := &faultfs.FS{}, journal.Position{}
		live := func(do func(s *Session)) []byte {
			w := journal.NewWriter(journal.WriterConfig{FS: fs})
			defer w.Close()
			log, _, err := journal.OpenDisk("s1", 7, w)
			if err != nil {
				t.Fatal(err)
			}
			s := New(Config{ID: "s1", Host: &stock{fixture: &fixture{ctx: t.Context()}, rt: &puppet{}}, Epoch: 7, Log: log,
				Encode: func(*journal.Record, journal.Form) []byte { return nil }})
			do(s)
			saved := savedText(s, nil, nil)
			if err := s.journal.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			return saved
		}
		saved := live(func(s *Session) {
			s.loader.state, s.loader.runtime = Loaded, &puppet{}
			s.play("user.message", user("m1"))
			if err := s.journal.AwaitShown(t.Context()); err != nil {
				t.Fatal(err)
			}
			reader = s.journal.Last()
			tc.ends(s)
		})
		for life, want := range tc.want {
			saved = live(func(s *Session) {
				if err := s.Restore(saved, nil, nil, nil); err != nil {
					t.Fatal(err)
				}
				if s.loader.State() != Disconnected || s.Awaited() {
					t.Errorf("%s: process %d has a session that is %v, and is to be loaded: %v", name, life+1, s.loader.State(), s.Awaited())
				}
				if err := s.journal.AwaitShown(t.Context()); err != nil {
					t.Fatal(err)
				}
				if told := s.endsSince(reader); told != want {
					t.Errorf("%s: process %d tells %d ends, not %d", name, life+1, told, want)
				}
				reader = s.journal.Last()
			})
		}
	}
}
