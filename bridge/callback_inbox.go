package bridge

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// inboxPlace is where a callback stands in the list of all that wait: by time, then by its ids.
// A page token is the place of the page's last callback, so that callbacks which are answered
// between two pages move no others.
type inboxPlace struct {
	Created  int64  `json:"t"` // in nanoseconds since 1970
	Tenant   string `json:"n,omitempty"`
	Session  string `json:"s"`
	Callback string `json:"c"`
}

// compare orders places.
func (p inboxPlace) compare(q inboxPlace) int {
	return cmp.Or(cmp.Compare(p.Created, q.Created), cmp.Compare(p.Tenant, q.Tenant),
		cmp.Compare(p.Session, q.Session), cmp.Compare(p.Callback, q.Callback))
}

func (p inboxPlace) token() string {
	text, _ := json.Marshal(p) // strings and numbers always encode
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseInboxToken returns the place of a page token, and the first place for none.
func parseInboxToken(token string) (p inboxPlace, err error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil && token != "" {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return p, fault.New(fault.InvalidField, "not a page token of this list").WithField("page_token")
	}
	return p, nil
}

// waiting is a callback with its session.
type waiting struct {
	inboxPlace
	s *session.Session
	p *callback.Pending
}

// inbox returns a page of the callbacks that wait in the sessions, oldest first, and the token
// of the next page, as callers of the tenant are told of them.
func (b *Bridge) inbox(
	tenant string, sessions []*session.Session, r *bridgev1.ListPendingRequest, size int,
) (*bridgev1.ListPendingResponse, error) {
	after, err := parseInboxToken(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	var all []waiting
	for _, s := range sessions {
		for _, p := range s.Callbacks().Registry().List() {
			at := inboxPlace{Created: p.Created.UnixNano(), Tenant: s.Tenant(), Session: s.ID(), Callback: p.ID}
			if tenancy.Sees(s, tenant, p.Kind) && (r.GetPageToken() == "" || at.compare(after) > 0) {
				all = append(all, waiting{at, s, p})
			}
		}
	}
	slices.SortFunc(all, func(v, w waiting) int { return v.compare(w.inboxPlace) })
	out := &bridgev1.ListPendingResponse{}
	if len(all) > size {
		all = all[:size]
		out.NextPageToken = all[size-1].token()
	}
	room := wire.InlineBytes
	for _, w := range all {
		var c *bridgev1.Callback
		c, room = b.codec.CallbackWithin(room, w.p, tenancy.NameFor(w.s, tenant), w.s.Callbacks().Registry().Offered(w.p), translate.Tidy)
		out.Callbacks = append(out.Callbacks, c)
	}
	return out, nil
}

// ListPending lists the callbacks that wait for an answer: of a session, or of all sessions
// that the caller may know of.
func (b *Bridge) ListPending(
	ctx context.Context, r *bridgev1.ListPendingRequest,
) (*bridgev1.ListPendingResponse, error) {
	size := int(r.GetPageSize())
	if size < 0 || size > maxPageSize {
		err := fault.New(fault.InvalidField, "page_size is %d, not between 1 and %d", size, maxPageSize)
		return nil, err.WithField("page_size")
	}
	if r.GetSessionId() == "" {
		return b.inbox(caller.From(ctx).Tenant, sessionsOf(b.visible(ctx)), r, cmp.Or(size, defaultPageSize))
	}
	s, err := b.asking(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	record(ctx, s.Journal().Last())
	return b.inbox(caller.From(ctx).Tenant, []*session.Session{s}, r, cmp.Or(size, callback.MaxPending))
}
