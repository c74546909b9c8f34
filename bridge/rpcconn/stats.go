package rpcconn

import "sync/atomic"

// Stats are a connection's counters and gauges.
type Stats struct {
	// Frames and bytes of bodies read; frames and bytes with headers written.
	FramesIn, BytesIn, FramesOut, BytesOut uint64
	// What the frames read were.
	Events, Notifications, Requests, Replies uint64
	// LateReplies came after their call had been given up, UnknownReplies to
	// no call at all. Malformed messages were whole frames without meaning.
	LateReplies, UnknownReplies, Malformed uint64
	// Abandoned calls had been written when their context ended; DroppedUnsent
	// had not.
	Abandoned, DroppedUnsent uint64
	// RefusedRequests found the queue full, DroppedAnswers a closed connection.
	RefusedRequests, DroppedAnswers uint64
	// Throttled counts the times that reading was held up by Options.Throttle; Throttling says
	// that it may be just now.
	Throttled  uint64
	Throttling bool
	// SlotWaits counts calls that had to wait for an in-flight slot.
	SlotWaits uint64
	// Unanswered calls were abandoned, and the peer has not replied yet: it may be busy with them.
	Unanswered int
	// InFlight calls hold a slot now; Serving requests of the peer run or
	// wait; QueuedBytes wait for the peer to read.
	InFlight, Serving, QueuedBytes int
}

type counters struct {
	framesIn, bytesIn, framesOut, bytesOut     atomic.Uint64
	events, notifications, requests, replies   atomic.Uint64
	lateReplies, unknownReplies, malformed     atomic.Uint64
	abandoned, droppedUnsent                   atomic.Uint64
	refusedRequests, droppedAnswers, slotWaits atomic.Uint64
	throttled                                  atomic.Uint64
	throttling                                 atomic.Bool
}

// Stats returns the counters as they are now.
func (c *Conn) Stats() Stats {
	s := &c.stats
	inFlight, unanswered := c.held()
	return Stats{
		FramesIn: s.framesIn.Load(), BytesIn: s.bytesIn.Load(),
		FramesOut: s.framesOut.Load(), BytesOut: s.bytesOut.Load(),
		Events: s.events.Load(), Notifications: s.notifications.Load(),
		Requests: s.requests.Load(), Replies: s.replies.Load(),
		LateReplies: s.lateReplies.Load(), UnknownReplies: s.unknownReplies.Load(),
		Malformed: s.malformed.Load(), Abandoned: s.abandoned.Load(),
		DroppedUnsent: s.droppedUnsent.Load(), RefusedRequests: s.refusedRequests.Load(),
		DroppedAnswers: s.droppedAnswers.Load(), SlotWaits: s.slotWaits.Load(),
		Throttled: s.throttled.Load(), Throttling: s.throttling.Load(),
		InFlight: inFlight, Unanswered: unanswered, Serving: c.serve.serving(), QueuedBytes: c.out.queued(),
	}
}

// held counts the calls that hold a slot, and those that the peer still owes a reply.
func (c *Conn) held() (inFlight, unanswered int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls), len(c.unanswered)
}

func (s *server) serving() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
