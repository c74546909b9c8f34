package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	toObserve     = bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE
	toParticipate = bridgev1.ShareAccess_SHARE_ACCESS_PARTICIPATE
)

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// offer has an owner share a session with a tenant, and tells what the share is like then.
func offer(
	t *testing.T, owner grpc.ClientConnInterface, id, tenant string, access bridgev1.ShareAccess,
) *bridgev1.SessionShare {
	t.Helper()
	out, err := bridgev1.NewSessionServiceClient(owner).ShareSession(t.Context(),
		&bridgev1.ShareSessionRequest{SessionId: id, Tenant: tenant, Access: access})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(out.GetShares(), func(s *bridgev1.SessionShare) bool { return s.GetTenant() == tenant })
	if i < 0 || out.GetShares()[i].GetAccess() != access {
		t.Fatalf("the shares are %v", out.GetShares())
	}
	return out.GetShares()[i]
}

func accept(t *testing.T, guest grpc.ClientConnInterface, name string) {
	t.Helper()
	out, err := bridgev1.NewSessionServiceClient(guest).AcceptShare(t.Context(),
		&bridgev1.AcceptShareRequest{SessionId: name})
	if err != nil || out.GetSession().GetSessionId() != name {
		t.Fatalf("accepting %s: %v, %v", name, out, err)
	}
}

// sessionOf makes a session.
func sessionOf(t *testing.T, conn grpc.ClientConnInterface, id string) bridgev1.SessionServiceClient {
	t.Helper()
	c := bridgev1.NewSessionServiceClient(conn)
	if _, err := c.CreateSession(t.Context(), &bridgev1.CreateSessionRequest{SessionId: id}); err != nil {
		t.Fatal(err)
	}
	return c
}

func look(t *testing.T, c bridgev1.SessionServiceClient, id string) error {
	_, err := c.ListEvents(t.Context(), &bridgev1.ListEventsRequest{SessionId: id})
	return err
}

func say(t *testing.T, c bridgev1.SessionServiceClient, id, text string) error {
	_, err := c.SendAndWait(t.Context(),
		&bridgev1.SendAndWaitRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: text}})
	return err
}

// listed are the sessions that a caller's list has, by name.
func listed(t *testing.T, c bridgev1.SessionServiceClient) map[string]*bridgev1.Session {
	t.Helper()
	list, err := c.ListSessions(t.Context(), &bridgev1.ListSessionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*bridgev1.Session{}
	for _, s := range list.GetSessions() {
		if out[s.GetSessionId()] != nil {
			t.Errorf("%q is in the list twice", s.GetSessionId())
		}
		out[s.GetSessionId()] = s
	}
	return out
}

// A session is shared with whom its owner names, for what the owner says, once that tenant has
// accepted, as long as both say, and after a restart too.
func TestSharing(t *testing.T) {
	t.Parallel()
	var config Config
	ts := startTenants(t, func(c *Config) { config = *c })
	ctx := t.Context()
	acme, rival := sessionOf(t, ts.as("acme-owner"), "s"), bridgev1.NewSessionServiceClient(ts.as("rival"))
	thief := bridgev1.NewSessionServiceClient(ts.as("thief"))
	wantShares := func(state bridgev1.ShareState) {
		t.Helper()
		got, err := acme.GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: "s"})
		if err != nil || len(got.GetSession().GetShares()) != 1 || got.GetSession().GetShares()[0].GetState() != state {
			t.Errorf("the owner is told of shares: %v, %v, want %v", got.GetSession().GetShares(), err, state)
		}
	}
	wantCode(t, "a look before", look(t, rival, "acme/s"), codes.NotFound)
	if name := offer(t, ts.as("acme-owner"), "s", "rival", toObserve).GetSessionId(); name != "acme/s" {
		t.Errorf("the session's name is %q", name)
	}
	wantShares(bridgev1.ShareState_SHARE_STATE_OFFERED)
	wantCode(t, "a look before it is accepted", look(t, rival, "acme/s"), codes.NotFound)
	_, err := thief.AcceptShare(ctx, &bridgev1.AcceptShareRequest{SessionId: "acme/s"})
	wantCode(t, "another's acceptance", err, codes.NotFound)
	accept(t, ts.as("rival"), "acme/s")
	accept(t, ts.as("rival"), "acme/s") // changes nothing
	wantShares(bridgev1.ShareState_SHARE_STATE_ACCEPTED)
	wantCode(t, "an observer's look", look(t, rival, "acme/s"), codes.OK)
	wantCode(t, "a look at the id alone", look(t, rival, "s"), codes.NotFound)
	wantCode(t, "an observer's word", say(t, rival, "acme/s", "hi"), codes.PermissionDenied)
	wantCode(t, "another's look", look(t, thief, "acme/s"), codes.NotFound)
	offer(t, ts.as("acme-owner"), "s", "rival", toParticipate)
	wantCode(t, "a participant's word", say(t, rival, "acme/s", "hi"), codes.OK)
	got, err := rival.GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: "acme/s"})
	if s := got.GetSession(); err != nil || s.GetOwner() != "acme" || s.GetAccess() != toParticipate ||
		s.GetSessionId() != "acme/s" || s.GetShares() != nil {
		t.Errorf("the guest is told of %v, %v", s, err)
	}
	_, err = rival.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: "acme/s"})
	wantCode(t, "deleting it", err, codes.PermissionDenied)
	_, err = rival.ResumeSession(ctx, &bridgev1.ResumeSessionRequest{SessionId: "acme/s"})
	wantCode(t, "resuming it", err, codes.PermissionDenied)
	_, err = rival.DisconnectSession(ctx, &bridgev1.DisconnectSessionRequest{SessionId: "acme/s"})
	wantCode(t, "disconnecting it", err, codes.PermissionDenied)
	_, err = rival.ShareSession(ctx,
		&bridgev1.ShareSessionRequest{SessionId: "acme/s", Tenant: "thief", Access: toObserve})
	wantCode(t, "passing it on", err, codes.PermissionDenied)
	for _, tenant := range []string{"", "acme", "No Tenant"} {
		_, err = acme.ShareSession(ctx,
			&bridgev1.ShareSessionRequest{SessionId: "s", Tenant: tenant, Access: toObserve})
		wantCode(t, "sharing with "+tenant, err, codes.InvalidArgument)
	}
	_, err = acme.ShareSession(ctx, &bridgev1.ShareSessionRequest{SessionId: "s", Tenant: "rival"})
	wantCode(t, "sharing for nothing", err, codes.InvalidArgument)

	ts.stop()
	ts.end(t)
	again := startTenants(t, func(c *Config) { c.DataDir, c.Policy = config.DataDir, config.Policy })
	acme, rival = bridgev1.NewSessionServiceClient(again.as("acme-owner")), bridgev1.NewSessionServiceClient(again.as("rival"))
	thief = bridgev1.NewSessionServiceClient(again.as("thief"))
	wantCode(t, "the owner's look after a restart", look(t, acme, "s"), codes.OK)
	wantCode(t, "a look after a restart", look(t, rival, "acme/s"), codes.OK)
	wantCode(t, "another's look after a restart", look(t, thief, "acme/s"), codes.NotFound)
	if _, err := acme.UnshareSession(ctx,
		&bridgev1.UnshareSessionRequest{SessionId: "s", Tenant: "rival"}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "a look afterwards", look(t, rival, "acme/s"), codes.NotFound)
	offer(t, again.as("acme-owner"), "s", "rival", toParticipate)
	wantCode(t, "a look at what is offered again", look(t, rival, "acme/s"), codes.NotFound)
}

// A shared session takes the place of none of the tenant it is shared with: that one's own
// sessions keep their ids, in calls and in lists, accepted or not.
func TestSharedSessionsDoNotCollide(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, nil)
	sessionOf(t, ts.as("acme-owner"), "same")
	rival := sessionOf(t, ts.as("rival"), "same")
	offer(t, ts.as("acme-owner"), "same", "rival", toParticipate)
	for _, accepted := range []bool{false, true} {
		want := []string{"same"}
		if accepted {
			accept(t, ts.as("rival"), "acme/same")
			want = append(want, "acme/same")
		}
		before := len(ts.cli("acme").Log())
		wantCode(t, "the tenant's own word", say(t, rival, "same", "only rival knows"), codes.OK)
		if log := ts.cli("acme").Log(); len(log) != before {
			t.Errorf("accepted %v: the sharer's CLI has heard %v", accepted, log[before:])
		}
		all := listed(t, rival)
		for _, name := range want {
			if all[name] == nil {
				t.Errorf("accepted %v: %q is not in %v", accepted, name, all)
			}
		}
		if len(all) != len(want) || all["same"].GetOwner() != "" || accepted && all["acme/same"].GetOwner() != "acme" {
			t.Errorf("accepted %v: the list is %v", accepted, all)
		}
	}
	wantCode(t, "a word in the shared one", say(t, rival, "acme/same", "for acme"), codes.OK)
	if !strings.Contains(logOf(ts.cli("acme")), "for acme") || strings.Contains(logOf(ts.cli("rival")), "for acme") {
		t.Error("what was said in the shared session went elsewhere")
	}
	// The tenant's own session is not there any more: its id still means no other.
	if _, err := rival.DeleteSession(t.Context(), &bridgev1.DeleteSessionRequest{SessionId: "same"}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "the id afterwards", look(t, rival, "same"), codes.NotFound)
	wantCode(t, "the shared one afterwards", look(t, rival, "acme/same"), codes.OK)
}

// An offer is declined, given up, made again, and gone with its session.
func TestOffersOfSessions(t *testing.T) {
	t.Parallel()
	var config Config
	ts := startTenants(t, func(c *Config) { config = *c })
	ctx, owner := t.Context(), ts.as("acme-owner")
	sessionOf(t, owner, "s")
	rival := bridgev1.NewSessionServiceClient(ts.as("rival"))
	offers := func() []string {
		t.Helper()
		out, err := rival.ListShareOffers(ctx, &bridgev1.ListShareOffersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, o := range out.GetOffers() {
			names = append(names, o.GetSessionId()+" "+o.GetOwner()+" "+o.GetAccess().String())
		}
		return names
	}
	want := func(what string, names ...string) {
		t.Helper()
		if got := offers(); !slices.Equal(got, names) {
			t.Errorf("%s: the offers are %v, want %v", what, got, names)
		}
	}
	decline := func() error {
		_, err := rival.DeclineShare(ctx, &bridgev1.DeclineShareRequest{SessionId: "acme/s"})
		return err
	}
	const one = "acme/s acme SHARE_ACCESS_OBSERVE"
	want("at first")
	wantCode(t, "declining nothing", decline(), codes.NotFound)
	offer(t, owner, "s", "rival", toObserve)
	want("offered", one)
	wantCode(t, "declining", decline(), codes.OK)
	wantCode(t, "declining again", decline(), codes.OK)
	want("declined")
	_, err := rival.AcceptShare(ctx, &bridgev1.AcceptShareRequest{SessionId: "acme/s"})
	wantCode(t, "accepting what was declined", err, codes.NotFound)
	offer(t, owner, "s", "rival", toObserve)
	want("offered again", one)
	accept(t, ts.as("rival"), "acme/s")
	want("accepted")
	wantCode(t, "giving it up", decline(), codes.OK)
	wantCode(t, "a look at what was given up", look(t, rival, "acme/s"), codes.NotFound)

	ts.stop()
	ts.end(t)
	again := startTenants(t, func(c *Config) { c.DataDir, c.Policy = config.DataDir, config.Policy })
	owner = again.as("acme-owner")
	acme := bridgev1.NewSessionServiceClient(owner)
	rival = bridgev1.NewSessionServiceClient(again.as("rival"))
	want("declined before a restart")
	offer(t, owner, "s", "rival", toObserve)
	accept(t, again.as("rival"), "acme/s")
	if _, err := acme.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: "s"}); err != nil {
		t.Fatal(err)
	}
	sessionOf(t, owner, "s")
	wantCode(t, "a look at another of the name", look(t, rival, "acme/s"), codes.NotFound)
	want("of another of the name")
	for _, id := range []string{"", "s", "acme/", "rival/s", "acme/none", "nobody/s", "acme/s/s", "/s"} {
		_, err := rival.AcceptShare(ctx, &bridgev1.AcceptShareRequest{SessionId: id})
		if code := status.Code(err); code != codes.NotFound && code != codes.InvalidArgument {
			t.Errorf("accepting %q: %v", id, err)
		}
	}
	_, err = acme.ListShareOffers(ctx, &bridgev1.ListShareOffersRequest{PageSize: -1})
	wantCode(t, "a bad page", err, codes.InvalidArgument)
	participant := bridgev1.NewSessionServiceClient(again.as("acme-participant"))
	_, err = participant.AcceptShare(ctx, &bridgev1.AcceptShareRequest{SessionId: "rival/s"})
	wantCode(t, "a participant's acceptance", err, codes.PermissionDenied)
}

// The names of one page of offers are in order, and the next page goes on.
func TestOffersInPages(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, nil)
	for _, id := range []string{"a", "b", "c"} {
		sessionOf(t, ts.as("acme-owner"), id)
		offer(t, ts.as("acme-owner"), id, "rival", toObserve)
	}
	rival, token := bridgev1.NewSessionServiceClient(ts.as("rival")), ""
	var names []string
	for range 2 {
		out, err := rival.ListShareOffers(t.Context(), &bridgev1.ListShareOffersRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range out.GetOffers() {
			names = append(names, o.GetSessionId())
		}
		token = out.GetNextPageToken()
	}
	if !slices.Equal(names, []string{"acme/a", "acme/b", "acme/c"}) || token != "" {
		t.Errorf("the offers are %v, and then %q", names, token)
	}
}

// A tenant's watchers see by its name when a share begins and ends, and nothing before.
func TestWatchersOfSharedSessions(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, nil)
	owner := ts.as("acme-owner")
	acme := sessionOf(t, owner, "s")
	offer(t, owner, "s", "rival", toParticipate)
	stream, err := bridgev1.NewEventServiceClient(ts.as("rival")).WatchSessions(t.Context(),
		&bridgev1.WatchSessionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil { // now the watch is registered
		t.Fatal(err)
	}
	next := func() string {
		t.Helper()
		for {
			c, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if kind := c.GetChange(); kind != bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT &&
				kind != bridgev1.SessionChange_SESSION_CHANGE_UPDATED {
				return strings.TrimPrefix(kind.String(), "SESSION_CHANGE_") + " " + c.GetSession().GetSessionId()
			}
		}
	}
	rival := sessionOf(t, ts.as("rival"), "own")
	if got := next(); got != "CREATED own" {
		t.Errorf("at first: %s", got)
	}
	wantCode(t, "the owner's word", say(t, acme, "s", "hi"), codes.OK)
	accept(t, ts.as("rival"), "acme/s")
	if got := next(); got != "SHARED acme/s" {
		t.Errorf("accepted: %s", got)
	}
	if _, err := rival.DeclineShare(t.Context(), &bridgev1.DeclineShareRequest{SessionId: "acme/s"}); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "UNSHARED acme/s" {
		t.Errorf("given up: %s", got)
	}
	offer(t, owner, "s", "rival", toParticipate)
	accept(t, ts.as("rival"), "acme/s")
	_ = next()
	if _, err := acme.DeleteSession(t.Context(), &bridgev1.DeleteSessionRequest{SessionId: "s"}); err != nil {
		t.Fatal(err)
	}
	for got := ""; got != "DELETED acme/s"; {
		if got = next(); got != "DELETED acme/s" && got != "DISCONNECTED acme/s" {
			t.Fatalf("deleted: %s", got)
		}
	}
}

// A share that a version wrote which did not ask the other tenant is an offer: it is not routed,
// least of all to the session that the other tenant has of the id.
func TestSharesOfAnOlderVersionAreOffers(t *testing.T) {
	t.Parallel()
	var config Config
	ts := startTenants(t, func(c *Config) { config = *c })
	sessionOf(t, ts.as("acme-owner"), "same")
	sessionOf(t, ts.as("rival"), "same")
	ts.stop()
	ts.end(t)
	older(t, config.DataDir, "acme.same", map[string]string{"rival": "drive", "": "read"})
	ts = startTenants(t, func(c *Config) { c.DataDir, c.Policy = config.DataDir, config.Policy })
	rival := bridgev1.NewSessionServiceClient(ts.as("rival"))
	if all := listed(t, rival); len(all) != 1 || all["same"] == nil {
		t.Errorf("the list is %v", all)
	}
	wantCode(t, "a word to the session", say(t, rival, "acme/same", "hi"), codes.NotFound)
	for name, want := range map[string]bridgev1.ShareAccess{"rival": toParticipate, "operator": toObserve} {
		out, err := bridgev1.NewSessionServiceClient(ts.as(name)).ListShareOffers(t.Context(),
			&bridgev1.ListShareOffersRequest{})
		if err != nil || len(out.GetOffers()) != 1 || out.GetOffers()[0].GetSessionId() != "acme/same" ||
			out.GetOffers()[0].GetAccess() != want {
			t.Errorf("%s is offered %v, %v", name, out, err)
		}
	}
	accept(t, ts.as("rival"), "acme/same")
	wantCode(t, "a word to the accepted session", say(t, rival, "acme/same", "hi"), codes.OK)
}

// older gives a saved session the form that shares had at first.
func older(t *testing.T, dir, key string, shares map[string]string) {
	t.Helper()
	path := filepath.Join(dir, "sessions", key, "session")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var entry struct {
		ID    string         `json:"id"`
		State map[string]any `json:"state"`
	}
	if err := json.Unmarshal(text, &entry); err != nil {
		t.Fatal(err)
	}
	delete(entry.State, "shared_with")
	entry.State["shares"] = shares
	if text, err = json.Marshal(entry); err != nil {
		t.Fatal(err)
	}
	write(t, path, string(text))
}
