package bridge

import (
	"testing"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// Who enters a session that leaves has it only when its owner is through.
func TestEnterWaitsForTheOneThatLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &session.Session{}
		b := &Bridge{sessions: map[string]*session.Session{s.Key(): s}, leaving: map[string]chan struct{}{}}
		gone, ok := b.leave(s)
		if !ok {
			t.Fatal("the session cannot leave")
		}
		var entered *session.Session
		go func() { entered, _ = b.enter(t.Context(), s.ID()) }()
		synctest.Wait()
		if entered != nil {
			t.Error("entered while it leaves")
		}
		gone(false)
		synctest.Wait()
		if entered != s {
			t.Errorf("entered %v, want the session that stayed", entered)
		}
	})
}
