package web

import (
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// cursor lets an EventSource resume EventService.Subscribe by itself: the id of each event is the position after
// which the stream continues, and a request with the last id continues there. Only a subscription to a single session
// has ids, because a position belongs to one session.
type cursor struct {
	last   string
	single bool
}

// request applies the last id to a request.
func (c *cursor) request(m any) error {
	r, ok := m.(*bridgev1.SubscribeRequest)
	if !ok || len(r.GetSessions()) != 1 {
		return nil
	}
	c.single = true
	if c.last == "" {
		return nil
	}
	after, ok := position.Parse(c.last)
	if !ok {
		return fault.New(fault.InvalidField, "the header %s is not a position: %q", headerLastEvent, c.last).
			WithField(headerLastEvent)
	}
	r.Sessions[0].After = &bridgev1.Position{Epoch: after.Epoch, Seq: after.Seq}
	return nil
}

// id returns the id of an event; "" if it has none.
func (c *cursor) id(m proto.Message) string {
	r, ok := m.(*bridgev1.SubscribeResponse)
	if !ok || !c.single || r.GetResumeAfter() == nil {
		return ""
	}
	return position.Position{Epoch: r.GetResumeAfter().GetEpoch(), Seq: r.GetResumeAfter().GetSeq()}.String()
}
