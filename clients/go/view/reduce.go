package view

import (
	"fmt"
	"slices"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Reduce returns the view after a frame of [copilot.Session.Frames]. Frames that arrive twice
// change nothing, and frames and events that are newer than this library change only the
// position. It copies the list of items once if the frame changes it.
func Reduce(v View, frame *bridgev1.SubscribeResponse) View {
	r := &reducer{View: v}
	r.reduce(frame)
	if copilot.ComparePositions(frame.GetResumeAfter(), r.Position) > 0 {
		r.Position = frame.GetResumeAfter()
	}
	return r.View
}

// reducer is a view while a frame changes it.
type reducer struct {
	View
	// ownsItems says that Items is a copy, which no other view has.
	ownsItems bool
}

func (r *reducer) reduce(frame *bridgev1.SubscribeResponse) {
	switch f := frame.GetFrame().(type) {
	case *bridgev1.SubscribeResponse_Started:
		r.setSession(f.Started.GetSession())
		r.Pending, r.GoingAway = f.Started.GetPendingCallbacks(), false
		r.Closed = bridgev1.CloseReason_CLOSE_REASON_UNSPECIFIED
	case *bridgev1.SubscribeResponse_Events:
		for _, event := range f.Events.GetEvents() {
			if copilot.ComparePositions(event.GetPosition(), r.Position) > 0 {
				r.event(event)
				r.Position = event.GetPosition()
			}
		}
	case *bridgev1.SubscribeResponse_CaughtUp:
		r.endReplay()
	case *bridgev1.SubscribeResponse_Gap:
		r.gap(f.Gap)
	case *bridgev1.SubscribeResponse_CallbackRequested:
		if cb := f.CallbackRequested.GetCallback(); cb != nil {
			r.Pending = append(without(r.Pending, cb.GetCallbackId()), cb)
		}
	case *bridgev1.SubscribeResponse_CallbackResolved:
		r.Pending = without(r.Pending, f.CallbackResolved.GetCallbackId())
	case *bridgev1.SubscribeResponse_RuntimeRestarted:
		key := fmt.Sprintf("restart %s/%d", copilot.FormatPosition(r.Position), len(r.Items))
		r.add(Restart{Head: Head{key, r.Position}, Cause: f.RuntimeRestarted.GetCause()})
		if outcome := f.RuntimeRestarted.GetTurnOutcome(); outcome != nil {
			r.endTurn(outcome)
		}
	case *bridgev1.SubscribeResponse_TurnEnded:
		r.endTurn(f.TurnEnded.GetOutcome())
		r.markLost(f.TurnEnded.GetMessageIds())
	case *bridgev1.SubscribeResponse_GoAway:
		r.GoingAway = true
	case *bridgev1.SubscribeResponse_Closed:
		r.idle()
		r.Pending, r.Closed = nil, f.Closed.GetReason()
	}
}

// setSession takes the session as the server reports it, for the state before the first event.
func (r *reducer) setSession(session *bridgev1.Session) {
	if session == nil {
		return
	}
	r.Session = session
	if summary := session.GetSummary(); summary != "" {
		r.Title = summary
	}
	if model := session.GetModelId(); model != "" {
		r.Model = model
	}
	switch {
	case session.GetTurnRunning() == r.Turn.Running:
	case session.GetTurnRunning():
		r.Turn.Running = true
	default:
		r.idle()
	}
}

// endReplay ends the replay. Without a running turn at the start of the stream, the view is then
// idle: the end of a turn is not always stored.
func (r *reducer) endReplay() {
	r.CaughtUp = true
	if r.Session != nil && !r.Session.GetTurnRunning() &&
		copilot.ComparePositions(r.Position, r.Session.GetPosition()) <= 0 {
		r.idle()
	}
}

func (r *reducer) gap(gap *bridgev1.Gap) {
	through := gap.GetThrough()
	if copilot.ComparePositions(through, r.Position) <= 0 {
		return
	}
	key := "gap " + copilot.FormatPosition(through)
	r.add(Gap{Head: Head{key, through}, Reason: gap.GetReason(), After: gap.GetAfter()})
	r.setSession(gap.GetSession())
	r.Pending = gap.GetPendingCallbacks()
}

// without is a copy of the callbacks, without one.
func without(pending []*bridgev1.Callback, id string) []*bridgev1.Callback {
	left := make([]*bridgev1.Callback, 0, len(pending)+1)
	for _, cb := range pending {
		if cb.GetCallbackId() != id {
			left = append(left, cb)
		}
	}
	return left
}

func (r *reducer) endTurn(outcome *bridgev1.TurnOutcome) {
	r.idle()
	if outcome != nil {
		r.Turn.Outcome = outcome
	}
}

func (r *reducer) markLost(messageIDs []string) {
	for i, item := range r.Items {
		if user, ok := item.(User); ok && !user.Lost && slices.Contains(messageIDs, user.Key) {
			user.Lost = true
			r.own()
			r.Items[i] = user
		}
	}
}

// idle ends the running turn: nothing streams any more.
func (r *reducer) idle() {
	r.Turn.Running, r.Turn.Intent = false, ""
	for i, item := range r.Items {
		switch streaming := item.(type) {
		case Message:
			streaming.Streaming = false
			r.set(i, streaming)
		case Reasoning:
			streaming.Streaming = false
			r.set(i, streaming)
		}
	}
}

// own makes Items a copy of its own.
func (r *reducer) own() {
	if !r.ownsItems {
		r.Items, r.ownsItems = slices.Clone(r.Items), true
	}
}

// set replaces an item that is not a User, if it is another one.
func (r *reducer) set(i int, item Item) {
	if r.Items[i] != item {
		r.own()
		r.Items[i] = item
	}
}

func (r *reducer) add(item Item) {
	r.own()
	r.Items = append(r.Items, item)
}

// find returns the index of an item; -1 if there is none.
func find[T Item](items []Item, key string) int {
	for i, item := range slices.Backward(items) { // items that change are near the end
		if found, ok := item.(T); ok && found.head().Key == key {
			return i
		}
	}
	return -1
}

// upsert changes the item with the key and type of created, or adds created with the change.
func upsert[T Item](r *reducer, created T, change func(*T)) {
	i := find[T](r.Items, created.head().Key)
	if i < 0 {
		change(&created)
		r.add(created)
		return
	}
	if found, ok := r.Items[i].(T); ok {
		change(&found)
		r.set(i, found)
	}
}
