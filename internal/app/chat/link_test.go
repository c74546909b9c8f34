package chat

import (
	"fmt"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/clients/go/view"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A terminal that stalls gets the newest notes and ends of callbacks, and how many others there were.
func TestUpdateIsBounded(t *testing.T) {
	t.Parallel()
	l := &Link{changed: make(chan struct{}, 1)}
	for i := range maxPending + 5 {
		l.tell(view.Info, fmt.Sprint("note ", i))
	}
	for i := range maxPending + 2 {
		ended := &bridgev1.CallbackResolved{CallbackId: fmt.Sprint(i)}
		l.put(func(u *Update) { u.Resolved = newest(u, u.Resolved, ended) })
	}
	u := l.Latest()
	if len(u.Notes) != maxPending || u.Notes[0].Text != "note 5" || len(u.Resolved) != maxPending ||
		u.Resolved[0].GetCallbackId() != "2" || u.LeftOut != 7 {
		t.Errorf("%d notes from %v, %d callbacks from %v, %d left out", len(u.Notes), u.Notes[0], len(u.Resolved),
			u.Resolved[0], u.LeftOut)
	}
	l.tell(view.Info, "later")
	if u := l.Latest(); len(u.Notes) != 1 || u.LeftOut != 0 {
		t.Errorf("the next update has %v, %d left out", u.Notes, u.LeftOut)
	}
}
