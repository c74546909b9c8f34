package inbox

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// cursor is where a callback stands in the list of all that wait: by time, then by its ids.
// A page token is the place of the page's last callback, so that callbacks which are answered
// between two pages move no others.
type cursor struct {
	Created  int64  `json:"t"` // in nanoseconds since 1970
	Tenant   string `json:"n,omitempty"`
	Session  string `json:"s"`
	Callback string `json:"c"`
}

// compare orders places.
func (p cursor) compare(q cursor) int {
	return cmp.Or(cmp.Compare(p.Created, q.Created), cmp.Compare(p.Tenant, q.Tenant),
		cmp.Compare(p.Session, q.Session), cmp.Compare(p.Callback, q.Callback))
}

func (p cursor) token() string {
	text, _ := json.Marshal(p) // strings and numbers always encode
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseToken returns the place of a page token, and the first place for none.
func parseToken(token string) (p cursor, err error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil && token != "" {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || token != "" && p.token() != token {
		return cursor{}, fault.New(fault.InvalidField, "not a page token of this list").WithField("page_token")
	}
	return p, nil
}

// waiting is a callback with its session.
type waiting struct {
	cursor
	s *session.Session
	p *callback.Pending
}

// page returns a page of the pending callbacks of sessions, oldest first, and the token of the next
// page, in the form for callers of a tenant.
func (svc *Service) page(
	tenant string, entries []*sessions.Entry, r *bridgev1.ListPendingRequest, size int,
) (*bridgev1.ListPendingResponse, error) {
	after, err := parseToken(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	var all []waiting
	for _, e := range entries {
		s := e.Session
		for _, p := range s.Callbacks().Registry().List() {
			at := cursor{Created: p.Created.UnixNano(), Tenant: s.Tenant(), Session: s.ID(), Callback: p.ID}
			if tenancy.Sees(s, tenant, p.Kind) && (r.GetPageToken() == "" || at.compare(after) > 0) {
				all = append(all, waiting{at, s, p})
			}
		}
	}
	slices.SortFunc(all, func(v, w waiting) int { return v.compare(w.cursor) })
	out := &bridgev1.ListPendingResponse{}
	if len(all) > size {
		all = all[:size]
		out.NextPageToken = all[size-1].token()
	}
	room := wire.InlineBytes
	for _, w := range all {
		var c *bridgev1.Callback
		name := tenancy.NameFor(w.s, tenant)
		c, room = svc.codec.CallbackWithin(room, w.p, name, w.s.Callbacks().Registry().Offered(w.p), translate.Tidy)
		out.Callbacks = append(out.Callbacks, c)
	}
	return out, nil
}

// ListPending lists the callbacks that wait for an answer: of a session, or of all sessions
// that the caller may know of.
func (svc *Service) ListPending(
	ctx context.Context, r *bridgev1.ListPendingRequest,
) (*bridgev1.ListPendingResponse, error) {
	size, err := fields.PageSize(r.GetPageSize())
	if err != nil {
		return nil, err
	}
	tenant := caller.From(ctx).Tenant
	if r.GetSessionId() == "" {
		return svc.page(tenant, svc.sessions.Visible(ctx), r, cmp.Or(size, fields.DefaultPageSize))
	}
	s, err := svc.sessions.Following(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	position.Record(ctx, s.Journal().Last())
	return svc.page(tenant, []*sessions.Entry{{Session: s}}, r, cmp.Or(size, callback.MaxPending))
}
