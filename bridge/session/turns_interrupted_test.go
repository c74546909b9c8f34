package session

import (
	"testing"

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
		s := New(Config{ID: "s1", Host: &stock{rig: &rig{ctx: t.Context()}, rt: &puppet{}}, Epoch: 7, Log: log,
			Encode: func(*journal.Record, journal.Form) []byte { return nil }})
		if saved == nil {
			s.loader.state = Loaded
			s.play("user.message", user("m1"))
		} else if err := s.Restore(saved, nil, nil); err != nil {
			t.Fatal(err)
		}
		marks := &s.intake.Marks
		switch life {
		case 1:
			told = marks.InterruptedAt
			if told == (journal.Position{}) {
				t.Error("nobody is told")
			}
			s.play("assistant.turn_start", "")
			if err := s.journal.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			marks.TurnEnd = s.journal.Last() // as after a load
		case 2, 3:
			if marks.InterruptedAt != told {
				t.Errorf("in life %d readers are told at %v, and were told at %v", life, marks.InterruptedAt, told)
			}
		}
		saved = s.Save(nil, nil)
		if err := s.journal.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Close()
	}
}
