package forward

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	defaultPageSize = 100
	maxPageSize     = 1000
	// maxPageBytes is the size from which a page gets no more elements.
	maxPageBytes = 1 << 20

	// tokenPrefix begins the tokens of merged pages.
	tokenPrefix = "replicas."
)

// place is where the next page continues in the list of one replica: after the first Skip elements of the page with the
// replica's own Token.
type place struct {
	Token string `json:"t,omitempty"`
	Skip  int    `json:"s,omitempty"`
}

// parsePlaces returns the places of a page token, by replica. merged is false if it is not a token of merged pages.
func parsePlaces(token string) (places map[string]place, merged bool, err error) {
	text, merged := strings.CutPrefix(token, tokenPrefix)
	if !merged {
		return nil, false, nil
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &places)
	}
	for _, p := range places {
		if p.Skip < 0 || p.Skip >= maxPageSize {
			return nil, true, badToken()
		}
	}
	if err != nil || tokenOf(places) != token {
		return nil, true, badToken()
	}
	return places, true, nil
}

func badToken() error {
	return fault.New(fault.InvalidField, "not a page token of this list").WithField("page_token")
}

func tokenOf(places map[string]place) string {
	if len(places) == 0 {
		return ""
	}
	text, _ := json.Marshal(places) // strings and numbers
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(text)
}

// paged is a request for a page of a list.
type paged interface {
	proto.Message
	GetPageSize() int32
	GetPageToken() string
}

// list merges the lists of all replicas.
type list[T proto.Message] struct {
	ask *asking
	// read returns the content of a page, and write a page with it. The zero reply is for its type.
	reply proto.Message
	read  func(proto.Message) (elements []T, next string)
	write func(elements []T, next string) proto.Message
	// compare orders the elements, as each replica does.
	compare func(a, b T) int
	// repeated reports that an element is that of another replica, or the same as the last one of the page.
	repeated func(node string, element, last T) bool
}

// source is the list of one replica.
type source[T any] struct {
	node string
	place
	elements []T
	next     string
	used     int
}

// rest is where the next page continues; ok is false at the end of the list.
func (s *source[T]) rest() (p place, ok bool) {
	if s.used < len(s.elements) {
		return place{s.Token, s.Skip + s.used}, true
	}
	return place{Token: s.next}, s.next != ""
}

// page serves a request for a page.
func (l *list[T]) page(ctx context.Context, r paged) (any, error) {
	f := l.ask.forwarder
	places, merged, err := parsePlaces(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	replicas := f.replicas()
	size := r.GetPageSize()
	if !merged && len(replicas) == 1 || size < 0 || size > maxPageSize {
		return l.ask.alone(ctx, r) // by its own tokens; it reports the wrong size
	}
	if !merged && r.GetPageToken() != "" {
		return nil, badToken()
	}
	size = cmp.Or(size, defaultPageSize)
	var sources []*source[T]
	calls := newParts(ctx)
	for _, replica := range replicas {
		at, continued := places[replica.Node]
		if merged && !continued {
			continue // the end of its list was reached, or it is new
		}
		s := &source[T]{node: replica.Node, place: at}
		sources = append(sources, s)
		request := pageOf(r, min(maxPageSize, size+int32(at.Skip)), at.Token) //nolint:gosec // below maxPageSize
		calls.run(func(ctx context.Context) error { return l.fetch(ctx, replica, s, request) })
	}
	if err := calls.wait(); err != nil {
		return nil, err
	}
	nameAll(ctx, replicas)
	elements := l.merge(sources, int(size))
	places = map[string]place{}
	for _, s := range sources {
		if at, ok := s.rest(); ok {
			places[s.node] = at
		}
	}
	return l.write(elements, tokenOf(places)), nil
}

// pageOf returns a request for another page of the same list.
func pageOf(r paged, size int32, token string) proto.Message {
	request := proto.Clone(r)
	m := request.ProtoReflect()
	fields := m.Descriptor().Fields()
	m.Set(fields.ByName("page_size"), protoreflect.ValueOfInt32(size))
	m.Set(fields.ByName("page_token"), protoreflect.ValueOfString(token))
	return request
}

// fetch gets what a page needs at most from one replica.
func (l *list[T]) fetch(ctx context.Context, replica Owner, s *source[T], request proto.Message) error {
	reply, err := l.ask.of(ctx, replica, request, l.reply.ProtoReflect().New().Interface())
	if err != nil {
		return err
	}
	s.elements, s.next = l.read(reply)
	s.used = min(s.Skip, len(s.elements))
	s.elements, s.used = s.elements[s.used:], 0
	return nil
}

// merge takes the first elements of all sources, in order. It ends where the next element is unknown.
func (l *list[T]) merge(sources []*source[T], size int) (page []T) {
	bytes := 0
	var last T
	for len(page) < size && bytes < maxPageBytes {
		var first *source[T]
		for _, s := range sources {
			switch {
			case s.used < len(s.elements):
				if first == nil || l.compare(s.elements[s.used], first.elements[first.used]) < 0 {
					first = s
				}
			case s.next != "":
				return page
			}
		}
		if first == nil {
			return page
		}
		element := first.elements[first.used]
		first.used++
		if !l.repeated(first.node, element, last) {
			page, last, bytes = append(page, element), element, bytes+proto.Size(element)
		}
	}
	return page
}

// sessions serves ListSessions. A session that the histories of several replicas have comes from its owner.
func (a *asking) sessions(ctx context.Context, r *bridgev1.ListSessionsRequest) (any, error) {
	tenant := caller.From(ctx).Tenant
	l := &list[*bridgev1.Session]{ask: a, reply: (*bridgev1.ListSessionsResponse)(nil),
		read: func(m proto.Message) ([]*bridgev1.Session, string) {
			reply := m.(*bridgev1.ListSessionsResponse)
			return reply.GetSessions(), reply.GetNextPageToken()
		},
		write: func(page []*bridgev1.Session, next string) proto.Message {
			return &bridgev1.ListSessionsResponse{Sessions: page, NextPageToken: next}
		},
		compare: func(a, b *bridgev1.Session) int {
			newer := b.GetUpdateTime().AsTime().Compare(a.GetUpdateTime().AsTime())
			return cmp.Or(newer, cmp.Compare(a.GetSessionId(), b.GetSessionId()))
		},
		repeated: func(node string, s, last *bridgev1.Session) bool {
			owner, err := a.forwarder.locator.Locate(ctx, tenant, s.GetSessionId())
			return err == nil && owner.Node != "" && owner.Node != node || s.GetSessionId() == last.GetSessionId()
		},
	}
	return l.page(ctx, r)
}

// pending serves ListPending without a session.
func (a *asking) pending(ctx context.Context, r *bridgev1.ListPendingRequest) (any, error) {
	l := &list[*bridgev1.Callback]{ask: a, reply: (*bridgev1.ListPendingResponse)(nil),
		read: func(m proto.Message) ([]*bridgev1.Callback, string) {
			reply := m.(*bridgev1.ListPendingResponse)
			return reply.GetCallbacks(), reply.GetNextPageToken()
		},
		write: func(page []*bridgev1.Callback, next string) proto.Message {
			return &bridgev1.ListPendingResponse{Callbacks: page, NextPageToken: next}
		},
		compare: func(a, b *bridgev1.Callback) int {
			return a.GetCreateTime().AsTime().Compare(b.GetCreateTime().AsTime())
		},
		repeated: func(string, *bridgev1.Callback, *bridgev1.Callback) bool { return false },
	}
	return l.page(ctx, r)
}

// offers serves ListShareOffers.
func (a *asking) offers(ctx context.Context, r *bridgev1.ListShareOffersRequest) (any, error) {
	l := &list[*bridgev1.ShareOffer]{ask: a, reply: (*bridgev1.ListShareOffersResponse)(nil),
		read: func(m proto.Message) ([]*bridgev1.ShareOffer, string) {
			reply := m.(*bridgev1.ListShareOffersResponse)
			return reply.GetOffers(), reply.GetNextPageToken()
		},
		write: func(page []*bridgev1.ShareOffer, next string) proto.Message {
			return &bridgev1.ListShareOffersResponse{Offers: page, NextPageToken: next}
		},
		compare: func(a, b *bridgev1.ShareOffer) int { return cmp.Compare(a.GetSessionId(), b.GetSessionId()) },
		repeated: func(_ string, s, last *bridgev1.ShareOffer) bool {
			return s.GetSessionId() == last.GetSessionId()
		},
	}
	return l.page(ctx, r)
}
