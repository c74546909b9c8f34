package stream

import (
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// gapReasons are the journal's reasons in the form of the API.
var gapReasons = map[journal.GapReason]bridgev1.GapReason{
	journal.EphemeralLost: bridgev1.GapReason_GAP_REASON_EPHEMERAL_LOST,
	journal.EpochEnded:    bridgev1.GapReason_GAP_REASON_EPOCH_ENDED,
	journal.Trimmed:       bridgev1.GapReason_GAP_REASON_TRIMMED,
}

func (f *sessionStream) sendGap(gap *journal.Gap) error {
	return f.send(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Gap{Gap: &bridgev1.Gap{
		After: session.Proto(gap.From), Through: session.Proto(gap.To), Reason: gapReasons[gap.Reason],
		Session: f.st.service.sessions.Snapshot(f.s, f.st.tenant), PendingCallbacks: f.pending(),
	}}})
}

// sendNote sends what a note says to those it is for.
func (f *sessionStream) sendNote(r *journal.Record) error {
	switch n := r.Note.(type) {
	case session.Requested:
		if f.callbacks {
			return f.sendRequested(n.Pending)
		}
	case session.Resolved:
		if f.callbacks && f.concerns(n.Kind, n.Offered) {
			return f.send(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_CallbackResolved{
				CallbackResolved: n.Proto(f.st.tenant),
			}})
		}
	case session.Restarted:
		rr := &bridgev1.RuntimeRestarted{Cause: n.Cause}
		if n.Turn != nil {
			rr.TurnOutcome = n.Turn.Proto()
		}
		return f.send(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_RuntimeRestarted{RuntimeRestarted: rr}})
	case session.TurnOver:
		return f.send(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_TurnEnded{
			TurnEnded: turnEnded(n),
		}})
	case session.Resent:
		return f.send(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_MessageResent{
			MessageResent: &bridgev1.MessageResent{MessageIds: n.IDs, NewMessageIds: n.As},
		}})
	case session.Continued:
		told := &bridgev1.TurnContinued{MessageId: n.MessageID, Attempt: int32(n.Attempt)} //nolint:gosec // at most 3
		return f.send(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_TurnContinued{
			TurnContinued: told,
		}})
	case session.Ended:
		return f.close(n.Reason)
	}
	return nil
}

// turnEnded is the frame of a turn's end.
func turnEnded(n session.TurnOver) *bridgev1.TurnEnded {
	out := &bridgev1.TurnEnded{Outcome: n.Outcome.Proto(), MessageIds: n.IDs}
	if n.Err != nil {
		out.Failure, _ = fault.Failure(n.Err)
	}
	return out
}

// concerns reports whether the stream carries a callback. Callbacks of kinds with a limit, such as file access,
// are frequent and large. Only the participants that they were offered to receive them, and streams without a
// participant, whose callers answer for the session.
func (f *sessionStream) concerns(k *callback.Kind, offered []string) bool {
	return tenancy.Sees(f.s, f.st.tenant, k) && (k.Limit == 0 || f.participant == "" || slices.Contains(offered, f.participant))
}

// sendRequested sends a callback that the stream carries.
func (f *sessionStream) sendRequested(p *callback.Pending) error {
	to := f.s.Callbacks().Registry().Offered(p)
	if !f.concerns(p.Kind, to) {
		return nil
	}
	c, _ := f.st.service.codec.CallbackWithin(wire.InlineBytes, p, f.name, to, f.fidelity())
	offered := slices.Contains(c.ParticipantIds, f.participant)
	return f.send(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_CallbackRequested{
		CallbackRequested: &bridgev1.CallbackRequested{Callback: c, Offered: offered},
	}})
}

// close ends the session's frames.
func (f *sessionStream) close(reason bridgev1.CloseReason) error {
	f.closed = true
	return f.send(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Closed{
		Closed: &bridgev1.SubscriptionClosed{Reason: reason, Position: session.Proto(f.at)},
	}})
}

func (f *sessionStream) beat() error {
	return f.send(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Heartbeat{
		Heartbeat: &bridgev1.Heartbeat{Position: session.Proto(f.at)},
	}})
}
