package stream

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// MinPageBytes is the smallest page_bytes of ListEvents.
	MinPageBytes     = 1 << 10
	maxPageBytes     = 3 << 20 // with its envelope under the 4 MiB that most clients take
	defaultPageBytes = 1 << 20
	// chunkBytes is the size of the pieces of ReadEvent.
	chunkBytes = 256 << 10
)

// ListEvents reads the journal, a page at a time.
func (svc *Service) ListEvents(ctx context.Context, r *bridgev1.ListEventsRequest) (*bridgev1.ListEventsResponse, error) {
	s, err := svc.sessions.Open(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(int(r.GetPageBytes()), defaultPageBytes)
	if limit < MinPageBytes || limit > maxPageBytes {
		return nil, fault.New(fault.InvalidField, "page_bytes is %d, not between %d and %d", limit, MinPageBytes, maxPageBytes).WithField("page_bytes")
	}
	if err := fields.Known(r.GetFidelity(), "fidelity"); err != nil {
		return nil, err
	}
	after := journal.Position{Epoch: r.GetAfter().GetEpoch(), Seq: r.GetAfter().GetSeq()}
	if token := r.GetPageToken(); token != "" {
		if after, err = parseToken(token); err != nil {
			return nil, err
		}
	}
	flt, err := NewFilter(r.GetFilter(), "filter")
	if err != nil {
		return nil, err
	}
	reader, err := s.Journal().NewReader(after, flt.Ephemeral(), func() {})
	if errors.Is(err, journal.ErrFuture) {
		return nil, fault.New(fault.InvalidField, "the journal has not reached position %d/%d", after.Epoch, after.Seq).WithField("after")
	}
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	if err := s.Journal().AwaitStored(ctx); err != nil { // what has happened is in the list
		return nil, session.Classify(err, "")
	}
	position.Record(ctx, s.Journal().Last())
	return svc.page(ctx, s, reader, flt, form(r.GetFidelity(), r.GetOriginalJson()), limit)
}

// page reads events until their encoded form exceeds limit; it holds at least one.
func (svc *Service) page(
	ctx context.Context, s *session.Session, reader *journal.Reader, flt *Filter, f journal.Form, limit int,
) (*bridgev1.ListEventsResponse, error) {
	out := &bridgev1.ListEventsResponse{}
	var wire []byte
	tenant, end := caller.From(ctx).Tenant, s.Journal().Last()
	for more := true; more; {
		if ctx.Err() != nil { // each read may take long
			return nil, session.Classify(ctx.Err(), "")
		}
		records, gap := reader.Next(nil, limit)
		if gap != nil {
			if len(wire) > 0 { // the next page begins with it
				out.NextPageToken = pageToken(gap.From)
				break
			}
			out.Gap = widen(out.Gap, &bridgev1.Gap{
				After: session.Proto(gap.From), Through: session.Proto(gap.To), Reason: gapReasons[gap.Reason], Session: svc.sessions.Snapshot(s, tenant),
			})
			continue
		}
		var next *journal.Record
		if wire, next = fill(wire, records, s, flt, f, limit); next != nil {
			prev := next.Pos
			prev.Seq--
			out.NextPageToken = pageToken(prev)
			break
		}
		more = len(records) > 0 && reader.Position().Before(end)
	}
	// The journal's pieces are elements of a field with the same number here.
	if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(wire, out); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "decoding events")
	}
	return out, nil
}

// fill appends the encoded form of events to a page. It returns the first event for which the page has no room.
func fill(
	wire []byte, records []*journal.Record, s *session.Session, flt *Filter, f journal.Form, limit int,
) (_ []byte, next *journal.Record) {
	for _, rec := range records {
		if rec.Note != nil || !flt.Passes(rec) {
			continue
		}
		event := s.Journal().Wire(nil, []*journal.Record{rec}, f)[0]
		if len(wire) > 0 && len(wire)+len(event) > limit {
			return wire, rec
		}
		wire = append(wire, event...)
	}
	return wire, nil
}

// widen puts two gaps in a row, of which a page has room for one, together: the worse reason
// tells. A new epoch is the worst, and what is missing of it comes after it.
func widen(first, then *bridgev1.Gap) *bridgev1.Gap {
	if first == nil || then.GetReason() == bridgev1.GapReason_GAP_REASON_EPOCH_ENDED {
		return then
	}
	out := &bridgev1.Gap{After: first.GetAfter(), Through: then.GetThrough(), Reason: first.GetReason(), Session: then.GetSession()}
	if first.GetReason() == bridgev1.GapReason_GAP_REASON_EPHEMERAL_LOST {
		out.Reason = then.GetReason()
	}
	return out
}

func pageToken(p journal.Position) string {
	return base64.RawURLEncoding.EncodeToString([]byte(p.String()))
}

func parseToken(token string) (p journal.Position, err error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	p, ok := position.Parse(string(text))
	if err != nil || !ok || pageToken(p) != token { // the decoder ignores line breaks
		return journal.Position{},
			fault.New(fault.InvalidField, "not a page token of this list").WithField("page_token")
	}
	return p, nil
}

// ReadEvent reads the whole JSON of one event.
func (svc *Service) ReadEvent(ctx context.Context, r *bridgev1.ReadEventRequest, send func(*bridgev1.ReadEventResponse) error) error {
	s, err := svc.sessions.Open(ctx, r.GetSessionId())
	if err != nil {
		return err
	}
	p := journal.Position{Epoch: r.GetPosition().GetEpoch(), Seq: r.GetPosition().GetSeq()}
	rec, ok := s.Journal().Get(p)
	if !ok {
		return fault.New(fault.EventNotFound, "no event at position %d/%d", p.Epoch, p.Seq).WithField("position").With("session_id", tenancy.NameOf(ctx, s))
	}
	total := int64(len(rec.JSON))
	for rest := rec.JSON; len(rest) > 0; {
		n := min(len(rest), chunkBytes)
		if err := send(&bridgev1.ReadEventResponse{JsonChunk: rest[:n], TotalBytes: total}); err != nil {
			return err
		}
		rest, total = rest[n:], 0
	}
	return nil
}
