// Package inbox turns the frames of WatchPending into changes of a list of callbacks.
package inbox

import (
	"slices"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Change is a callback that waits, or no longer does.
type Change struct {
	Callback *bridgev1.Callback
	Ended    bool
	// Resolved says how the callback ended; nil if the server did not.
	Resolved *bridgev1.CallbackResolved
}

type key struct{ session, callback string }

// List has the callbacks that wait, in the order of their arrival, over one stream after
// another. It is not safe for concurrent use. The zero value is an empty list.
type List struct {
	order   []key
	waiting map[key]*entry
}

type entry struct {
	callback *bridgev1.Callback
	// confirmed is false until the list that follows a restart has the callback.
	confirmed bool
}

// Restart notes that the server lists all callbacks again.
func (l *List) Restart() {
	for _, e := range l.waiting {
		e.confirmed = false
	}
}

// Take returns the changes of a frame. A callback that a repeated list contains is no change;
// one that it does not contain has ended.
func (l *List) Take(frame *bridgev1.WatchPendingResponse) []Change {
	switch change := frame.GetChange().(type) {
	case *bridgev1.WatchPendingResponse_Requested:
		return l.add(change.Requested)
	case *bridgev1.WatchPendingResponse_Resolved:
		r := change.Resolved
		ended := key{r.GetSessionId(), r.GetResolved().GetCallbackId()}
		return l.end(r.GetResolved(), func(k key) bool { return k == ended })
	case *bridgev1.WatchPendingResponse_Unmatched:
		session := change.Unmatched.GetSessionId()
		return l.end(nil, func(k key) bool { return k.session == session })
	case *bridgev1.WatchPendingResponse_Reset_:
		l.Restart()
	case *bridgev1.WatchPendingResponse_CaughtUp:
		return l.end(nil, func(k key) bool { return !l.waiting[k].confirmed })
	}
	return nil
}

func (l *List) add(callback *bridgev1.Callback) []Change {
	k := key{callback.GetSessionId(), callback.GetCallbackId()}
	if e := l.waiting[k]; e != nil {
		e.confirmed = true
		return nil
	}
	if l.waiting == nil {
		l.waiting = map[key]*entry{}
	}
	l.waiting[k] = &entry{callback: callback, confirmed: true}
	l.order = append(l.order, k)
	return []Change{{Callback: callback}}
}

// end removes callbacks.
func (l *List) end(resolved *bridgev1.CallbackResolved, over func(key) bool) (changes []Change) {
	l.order = slices.DeleteFunc(l.order, func(k key) bool {
		if !over(k) {
			return false
		}
		changes = append(changes, Change{Callback: l.waiting[k].callback, Ended: true, Resolved: resolved})
		delete(l.waiting, k)
		return true
	})
	return changes
}
