package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// metadata is what the CLI's history says of a session.
type metadata struct {
	SessionID    string    `json:"sessionId"`
	StartTime    time.Time `json:"startTime"`
	ModifiedTime time.Time `json:"modifiedTime"`
	Summary      string    `json:"summary"`
	Name         string    `json:"name"`
	ClientName   string    `json:"clientName"`
	IsRemote     bool      `json:"isRemote"`
	Context      *struct {
		Cwd        string `json:"cwd"`
		GitRoot    string `json:"gitRoot"`
		Repository string `json:"repository"`
		Branch     string `json:"branch"`
	} `json:"context"`
}

// onto puts what the history says over what the bridge knows; s is nil for a session
// that the bridge does not have.
func (m *metadata) onto(s *bridgev1.Session) *bridgev1.Session {
	if s == nil {
		s = &bridgev1.Session{SessionId: m.SessionID, State: bridgev1.SessionState_SESSION_STATE_STORED, Context: &bridgev1.SessionContext{}}
	}
	s.IsRemote = m.IsRemote
	if !m.StartTime.IsZero() {
		s.CreateTime = timestamppb.New(m.StartTime)
	}
	if !m.ModifiedTime.IsZero() {
		s.UpdateTime = timestamppb.New(m.ModifiedTime)
	}
	for _, text := range []struct {
		to   *string
		from string
	}{{&s.Summary, m.Summary}, {&s.Name, m.Name}, {&s.ClientName, m.ClientName}} {
		if text.from != "" {
			*text.to = text.from
		}
	}
	if c := m.Context; c != nil {
		s.Context = &bridgev1.SessionContext{WorkingDirectory: c.Cwd, GitRoot: c.GitRoot, Repository: c.Repository, Branch: c.Branch}
	}
	return s
}

// home is the profile in whose home a session is to be found: what the caller says, else
// where the bridge had it, else its own.
func (b *Bridge) home(ctx context.Context, id string, m *bridgev1.RuntimeProfile) (runtime.Profile, error) {
	// The home of a session of another tenant is that tenant's: no caller of this one looks there.
	if e := b.known(ctx, id); m == nil && e != nil {
		return b.fleet.ProfileNow(e)
	}
	return b.tenants.ReadProfile(ctx, m, "runtime_profile", id)
}

// callRuntime makes a call that is about no session that is open.
func (b *Bridge) callRuntime(ctx context.Context, p runtime.Profile, method string, params jsonobj.Object, into any) error {
	rt, err := b.fleet.First(ctx, p)
	if err != nil {
		return err
	}
	result, err := rt.Call(ctx, method, params.JSON())
	if err != nil {
		return session.Classify(err, method)
	}
	if err := json.Unmarshal(result, into); err != nil {
		return fault.Wrap(err, fault.CLIProtocolError, "reading the result of %s", method)
	}
	return nil
}

// stored returns what the CLI's history says of a session, or nil.
func (b *Bridge) stored(ctx context.Context, p runtime.Profile, id string) (*metadata, error) {
	var params jsonobj.Object
	params.SetString("sessionId", id)
	var r struct{ Session *metadata }
	if err := b.callRuntime(ctx, p, "session.getMetadata", params, &r); err != nil {
		if fault.ReasonOf(err) == fault.SessionNotFound {
			return nil, nil
		}
		return nil, err
	}
	return r.Session, nil
}

// GetSession tells about one session.
func (b *Bridge) GetSession(ctx context.Context, r *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
	e, err := b.openEntry(ctx, r.GetSessionId())
	if err != nil && (fault.ReasonOf(err) != fault.SessionNotFound || b.disconnected(ctx, r.GetSessionId())) {
		return nil, err
	}
	if tenancy.IsShared(r.GetSessionId()) {
		return b.sharedSession(ctx, e, err)
	}
	p, metaErr := b.home(ctx, r.GetSessionId(), r.GetRuntimeProfile())
	if metaErr != nil {
		return nil, metaErr
	}
	var m *metadata
	if p.SessionFS == nil || err != nil { // else only its own participants know
		m, metaErr = b.stored(ctx, p, r.GetSessionId())
	}
	if err != nil {
		// Not open here: the history decides.
		damaged := b.damagedSession(caller.From(ctx).Tenant, r.GetSessionId())
		switch {
		case damaged != nil && m == nil: // which may be why the history cannot be asked
			return &bridgev1.GetSessionResponse{Session: damaged}, nil
		case metaErr != nil:
			return nil, metaErr
		case m == nil:
			return nil, err
		}
		return &bridgev1.GetSessionResponse{Session: m.onto(damaged)}, nil
	}
	out := snapshotFor(ctx, e)
	if m != nil {
		out = m.onto(out)
	}
	record(ctx, e.Session.Journal().Last())
	return &bridgev1.GetSessionResponse{Session: out}, nil
}

// sharedSession tells about a session that another tenant shares, or why there is none. The
// history in the owner's home is not asked: it would take one of the owner's CLI processes.
func (b *Bridge) sharedSession(ctx context.Context, e *registry.Entry, err error) (*bridgev1.GetSessionResponse, error) {
	if err != nil {
		return nil, err
	}
	record(ctx, e.Session.Journal().Last())
	return &bridgev1.GetSessionResponse{Session: snapshotOf(ctx, e)}, nil
}

// disconnected reports whether the bridge has the session, and its use is over.
func (b *Bridge) disconnected(ctx context.Context, id string) bool {
	e := b.known(ctx, id)
	return e != nil && e.Session.State() == session.Disconnected
}

const (
	defaultPageSize = 100
	maxPageSize     = 1000
)

// ListSessions lists the sessions that are open or in the CLI's history.
func (b *Bridge) ListSessions(ctx context.Context, r *bridgev1.ListSessionsRequest) (*bridgev1.ListSessionsResponse, error) {
	size, begin, err := pageOf(r)
	if err != nil {
		return nil, err
	}
	homes := b.fleet.Homes(ctx)
	if m := r.GetRuntimeProfile(); m != nil {
		p, err := b.tenants.ReadProfile(ctx, m, "runtime_profile", "")
		if err != nil {
			return nil, err
		}
		homes = []runtime.Profile{p}
	}
	sessions, err := b.list(ctx, homes, r.GetFilter())
	if err != nil {
		return nil, err
	}
	out := &bridgev1.ListSessionsResponse{}
	out.Sessions, out.NextPageToken = pageIn(sessions, begin, size)
	return out, nil
}

// pageOf reads which page of a list is asked for.
func pageOf(r interface {
	GetPageSize() int32
	GetPageToken() string
}) (size, begin int, err error) {
	size = int(r.GetPageSize())
	if size < 0 || size > maxPageSize {
		return 0, 0, fault.New(fault.InvalidField, "page_size is %d, not between 1 and %d", size, maxPageSize).WithField("page_size")
	}
	if token := r.GetPageToken(); token != "" {
		begin, err = strconv.Atoi(token)
		if err != nil || begin < 0 {
			return 0, 0, fault.New(fault.InvalidField, "not a page token of this list").WithField("page_token")
		}
	}
	return cmp.Or(size, defaultPageSize), begin, nil
}

// pageIn cuts a page out of a list, and tells how to ask for the next.
func pageIn[T any](list []T, begin, size int) (page []T, next string) {
	begin = min(begin, len(list))
	end := min(begin+size, len(list))
	if end < len(list) {
		next = strconv.Itoa(end)
	}
	return list[begin:end], next
}

// list returns every session of the homes that fits, and those that are shared with the
// caller's tenant, last used first. What the CLI's history says of an id is said of the tenant's
// own session of that id alone.
func (b *Bridge) list(ctx context.Context, homes []runtime.Profile, f *bridgev1.SessionFilter) ([]*bridgev1.Session, error) {
	var params, filter jsonobj.Object
	for member, value := range map[string]string{"cwd": f.GetWorkingDirectory(), "gitRoot": f.GetGitRoot(), "repository": f.GetRepository(), "branch": f.GetBranch()} {
		if value != "" {
			filter.SetString(member, value)
		}
	}
	if len(filter) > 0 {
		params.Set("filter", filter.JSON())
	}
	var stored []*metadata
	for _, p := range homes {
		var r struct{ Sessions []*metadata }
		err := b.callRuntime(ctx, p, "session.list", params.Clone(), &r)
		if err != nil && fault.ReasonOf(err) != fault.RuntimeNotRunning {
			return nil, err
		}
		// Without a process, a caller who may not start one is told of the sessions that the
		// bridge itself knows.
		stored = append(stored, r.Sessions...)
	}
	byID := map[string]*bridgev1.Session{}
	var shared []*bridgev1.Session
	for _, e := range b.visible(ctx) {
		snapshot := snapshotFor(ctx, e)
		switch {
		case !fits(snapshot, f):
		case tenancy.Foreign(ctx, e.Session):
			shared = append(shared, snapshot)
		default:
			byID[e.Session.ID()] = snapshot
		}
	}
	damaged := map[string]*bridgev1.Session{}
	for _, s := range b.damagedSessions(caller.From(ctx).Tenant) {
		damaged[s.SessionId] = s
		if byID[s.SessionId] == nil && fits(s, f) {
			byID[s.SessionId] = s
		}
	}
	for _, m := range stored {
		byID[m.SessionID] = m.onto(cmp.Or(byID[m.SessionID], damaged[m.SessionID]))
	}
	out := shared
	for _, s := range byID {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *bridgev1.Session) int {
		return cmp.Or(b.GetUpdateTime().AsTime().Compare(a.GetUpdateTime().AsTime()), cmp.Compare(a.SessionId, b.SessionId))
	})
	return out, nil
}

// fits reports whether a session is one that the filter asks for.
func fits(s *bridgev1.Session, f *bridgev1.SessionFilter) bool {
	fit := func(want, have string) bool { return want == "" || want == have }
	c := s.GetContext()
	return fit(f.GetWorkingDirectory(), c.GetWorkingDirectory()) && fit(f.GetGitRoot(), c.GetGitRoot()) &&
		fit(f.GetRepository(), c.GetRepository()) && fit(f.GetBranch(), c.GetBranch())
}

// GetLastSession tells which session was used last.
func (b *Bridge) GetLastSession(ctx context.Context, r *bridgev1.GetLastSessionRequest) (*bridgev1.GetLastSessionResponse, error) {
	p, err := b.tenants.ReadProfile(ctx, r.GetRuntimeProfile(), "runtime_profile", "")
	if err != nil {
		return nil, err
	}
	var out struct{ SessionID string }
	if err := b.callRuntime(ctx, p, "session.getLastId", nil, &out); err != nil {
		return nil, err
	}
	return &bridgev1.GetLastSessionResponse{SessionId: out.SessionID}, nil
}

// GetForegroundSession tells which session the host's user interface shows.
func (b *Bridge) GetForegroundSession(ctx context.Context, _ *bridgev1.GetForegroundSessionRequest) (*bridgev1.GetForegroundSessionResponse, error) {
	var r struct{ SessionID, WorkspacePath string }
	if err := b.callRuntime(ctx, b.tenants.CallerProfile(ctx), "session.getForeground", nil, &r); err != nil {
		return nil, err
	}
	return &bridgev1.GetForegroundSessionResponse{SessionId: r.SessionID, WorkspacePath: r.WorkspacePath}, nil
}

// SetForegroundSession asks the host's user interface to show a session.
func (b *Bridge) SetForegroundSession(ctx context.Context, r *bridgev1.SetForegroundSessionRequest) (*bridgev1.SetForegroundSessionResponse, error) {
	s, err := b.open(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	result, at, err := s.Do(ctx, "session.setForeground", nil)
	if err != nil {
		return nil, err
	}
	if err := session.Refused(result, "session.setForeground"); err != nil {
		return nil, err
	}
	record(ctx, at)
	return &bridgev1.SetForegroundSessionResponse{}, nil
}
