package rpcconn

import "sync/atomic"

// Stats are a connection's counters and gauges.
type Stats struct {
	// Frames read; frames written and their bytes with headers.
	FramesIn, FramesOut, BytesOut uint64
	// Frames read, by type.
	Events, Notifications, Replies uint64
	// LateReplies arrived after their call was abandoned, UnknownReplies belong to no call. Malformed messages are
	// valid frames with an invalid message.
	LateReplies, UnknownReplies, Malformed uint64
	// Abandoned calls were written before their context ended; DroppedUnsent ones were not.
	Abandoned, DroppedUnsent uint64
	// RefusedRequests exceeded the queue, DroppedAnswers found the connection closed.
	RefusedRequests, DroppedAnswers uint64
	// Throttled counts the times that Options.Throttle delayed reading; Throttling reports that it may be doing so
	// now.
	Throttled  uint64
	Throttling bool
	// SlotWaits counts calls that waited for an in-flight slot.
	SlotWaits uint64
	// Unanswered counts abandoned calls without a reply so far: the peer may still be processing them.
	Unanswered int
	// InFlight calls hold a slot; Serving counts the peer's requests that run or wait; QueuedBytes wait for the peer
	// to read.
	InFlight, Serving, QueuedBytes int
}

type counters struct {
	framesIn, framesOut, bytesOut              atomic.Uint64
	events, notifications, replies             atomic.Uint64
	lateReplies, unknownReplies, malformed     atomic.Uint64
	abandoned, droppedUnsent                   atomic.Uint64
	refusedRequests, droppedAnswers, slotWaits atomic.Uint64
	throttled                                  atomic.Uint64
	throttling                                 atomic.Bool
}

// Stats returns the current values.
func (c *Conn) Stats() Stats {
	s := &c.stats
	inFlight, unanswered := c.held()
	return Stats{
		FramesIn: s.framesIn.Load(), FramesOut: s.framesOut.Load(), BytesOut: s.bytesOut.Load(),
		Events: s.events.Load(), Notifications: s.notifications.Load(), Replies: s.replies.Load(),
		LateReplies: s.lateReplies.Load(), UnknownReplies: s.unknownReplies.Load(),
		Malformed: s.malformed.Load(), Abandoned: s.abandoned.Load(),
		DroppedUnsent: s.droppedUnsent.Load(), RefusedRequests: s.refusedRequests.Load(),
		DroppedAnswers: s.droppedAnswers.Load(), SlotWaits: s.slotWaits.Load(),
		Throttled: s.throttled.Load(), Throttling: s.throttling.Load(),
		InFlight: inFlight, Unanswered: unanswered, Serving: c.serve.serving(), QueuedBytes: c.out.queued(),
	}
}

// held counts the calls that hold a slot, and the abandoned calls without a reply.
func (c *Conn) held() (inFlight, unanswered int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls), len(c.unanswered)
}

func (s *server) serving() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}
