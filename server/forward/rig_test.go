package forward_test

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ownership is what all replicas of a test agree on: the node that has each session, by "tenant/id".
type ownership struct {
	mu      sync.Mutex
	owners  map[string]string
	stored  map[string]bool
	address map[string]string
}

func (o *ownership) set(key, node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.owners[key] = node
}

// keyOf returns the key of a session that a caller names.
func keyOf(tenant, session string) string {
	if strings.Contains(session, "/") {
		return strings.TrimPrefix(session, "host/") // the host's own tenant has no name in keys
	}
	if tenant == "" {
		return session
	}
	return tenant + "/" + session
}

// locator is the Locator of one replica. It remembers owners until a call of Verify.
type locator struct {
	*ownership
	node string

	// verified counts the calls of Verify.
	verified int
	memory   map[string]string
	// draining, if set, is the replica to which this one leaves new sessions.
	draining string
	// looked, if set, receives each call of Peers.
	looked chan struct{}
}

func (l *locator) Locate(_ context.Context, tenant, session string) (forward.Owner, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := keyOf(tenant, session)
	node, known := l.memory[key]
	if !known || l.owners[key] == l.node {
		node = l.owners[key]
		l.memory[key] = node
	}
	if node == l.node && l.owners[key] != node {
		node = "" // this replica's own sessions are certain
	}
	return l.of(node), nil
}

func (l *locator) of(node string) forward.Owner {
	return forward.Owner{Node: node, Address: l.address[node], Here: node == l.node}
}

func (l *locator) Verify(_ context.Context, tenant, session string) (forward.Owner, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verified++
	key := keyOf(tenant, session)
	l.memory[key] = l.owners[key]
	return l.of(l.owners[key]), nil
}

func (l *locator) Claim(_ context.Context, tenant, session string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := keyOf(tenant, session)
	switch {
	case !l.stored[key]:
	case l.owners[key] != "":
		return forward.ErrTaken
	default:
		l.owners[key] = l.node
	}
	return nil
}

func (l *locator) Place(_, _ string, labels map[string]string) (forward.Owner, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	node := cmp.Or(l.draining, l.node)
	if needs := labels["node"]; needs != "" {
		if l.address[needs] == "" {
			return forward.Owner{}, fault.New(fault.NodeLabelsUnmet, "no replica is %q", needs)
		}
		node = needs
	}
	return l.of(node), nil
}

func (l *locator) Peers() (peers []forward.Owner) {
	if l.looked != nil {
		l.looked <- struct{}{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for node := range l.address {
		if node != l.node {
			peers = append(peers, l.of(node))
		}
	}
	return peers
}

// replica is one server of a cluster.
type replica struct {
	*servertest.Running
	node    string
	locator *locator
	backend *backend
	policy  *policy.Store // nil without one
}

// setPolicy replaces the replica's policy.
func (r *replica) setPolicy(tb testing.TB, text string) {
	tb.Helper()
	var c server.Config
	withPolicy(tb, text)(&c)
	r.policy.Use(c.Policy.Current())
}

// cluster is several replicas in one process.
type cluster struct {
	*ownership
	ca       *servertest.CA
	replicas map[string]*replica
}

// start runs replicas with the names of nodes. configure, unless nil, changes their configuration.
func start(tb testing.TB, configure func(*server.Config), nodes ...string) *cluster {
	tb.Helper()
	c := &cluster{ownership: &ownership{owners: map[string]string{}, stored: map[string]bool{},
		address: map[string]string{}}, ca: servertest.NewCA(tb), replicas: map[string]*replica{}}
	for _, node := range nodes {
		c.join(tb, node, configure)
	}
	return c
}

// join adds a replica.
func (c *cluster) join(tb testing.TB, node string, configure func(*server.Config)) *replica {
	tb.Helper()
	r := &replica{node: node, locator: &locator{ownership: c.ownership, node: node, memory: map[string]string{}},
		backend: &backend{node: node, telemetry: make(chan *bridgev1.WatchTelemetryResponse)}}
	config := server.Config{Forward: &forward.Config{Node: node, Listen: "127.0.0.1:0", Locator: r.locator,
		TLS: c.ca.Issue(tb)}}
	if configure != nil {
		configure(&config)
	}
	r.policy = config.Policy
	b := r.backend
	r.Running = servertest.Start(tb, config, rpc.NewSession(b, b, b, b, nil), rpc.NewEvent(b, b), rpc.NewCallback(b, b),
		rpc.NewRuntime(b, nil, b), rpc.NewSurface(b, true))
	c.mu.Lock()
	c.address[node] = r.Server.ReplicaAddr().String()
	c.mu.Unlock()
	c.replicas[node] = r
	return r
}

// backend is the bridge of one replica. A test sets the functions that it needs; GetSession answers with the node's
// name by default.
type backend struct {
	rpc.SessionBackend
	rpc.HistoryBackend
	rpc.ShareBackend
	rpc.RuntimeBackend
	rpc.NodeBackend
	rpc.CallbackBackend
	rpc.SurfaceBackend

	node       string
	get        func(context.Context, *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error)
	create     func(context.Context, *bridgev1.CreateSessionRequest) (*bridgev1.CreateSessionResponse, error)
	send       func(context.Context, *bridgev1.SendRequest) (*bridgev1.SendResponse, error)
	subscribe  func(context.Context, *bridgev1.SubscribeRequest, frame.Sink) error
	run        func(context.Context, *bridgev1.RunRequest, frame.Sink) error
	sendStream func(context.Context, *bridgev1.SendRequest,
		func() (*bridgev1.AttachmentChunk, error)) (*bridgev1.SendStreamResponse, error)
	attach    func(context.Context, *bridgev1.AttachStart) (rpc.Attachment, error)
	callbacks []*bridgev1.Callback
	offers    []*bridgev1.ShareOffer
	usage     []*bridgev1.UsageRow
	skipped   chan struct{}
	list      func(context.Context, *bridgev1.ListSessionsRequest) (*bridgev1.ListSessionsResponse, error)
	prune     func(context.Context, *bridgev1.PruneSessionsRequest) (*bridgev1.PruneSessionsResponse, error)
	watch     func(context.Context, *bridgev1.WatchSessionsRequest, func() error,
		func(*bridgev1.WatchSessionsResponse) error) error
	telemetry chan *bridgev1.WatchTelemetryResponse
}

func (b *backend) GetSession(
	ctx context.Context, r *bridgev1.GetSessionRequest,
) (*bridgev1.GetSessionResponse, error) {
	if b.get != nil {
		return b.get(ctx, r)
	}
	return &bridgev1.GetSessionResponse{Session: &bridgev1.Session{SessionId: r.GetSessionId(), Name: b.node}}, nil
}

// DrainNode returns the first byte of the node's name as a number.
func (b *backend) DrainNode(context.Context, *bridgev1.DrainNodeRequest) (*bridgev1.DrainNodeResponse, error) {
	return &bridgev1.DrainNodeResponse{MovedSessions: int64(b.node[0])}, nil
}

func (b *backend) CreateSession(
	ctx context.Context, r *bridgev1.CreateSessionRequest,
) (*bridgev1.CreateSessionResponse, error) {
	return b.create(ctx, r)
}

func (b *backend) ListSessions(
	ctx context.Context, r *bridgev1.ListSessionsRequest,
) (*bridgev1.ListSessionsResponse, error) {
	return b.list(ctx, r)
}

func (b *backend) PruneSessions(
	ctx context.Context, r *bridgev1.PruneSessionsRequest,
) (*bridgev1.PruneSessionsResponse, error) {
	return b.prune(ctx, r)
}

func (b *backend) Send(ctx context.Context, r *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
	if b.send != nil {
		return b.send(ctx, r)
	}
	return &bridgev1.SendResponse{MessageId: b.node + " " + r.GetPrompt().GetText()}, nil
}

func (b *backend) SendAndWait(
	context.Context, *bridgev1.SendAndWaitRequest,
) (*bridgev1.SendAndWaitResponse, error) {
	return nil, fault.New(fault.FeatureDisabled, "not in this test")
}

func (b *backend) SendStream(ctx context.Context, first *bridgev1.SendRequest,
	next func() (*bridgev1.AttachmentChunk, error),
) (*bridgev1.SendStreamResponse, error) {
	return b.sendStream(ctx, first, next)
}

func (b *backend) Run(ctx context.Context, r *bridgev1.RunRequest, emit frame.Sink) error {
	return b.run(ctx, r, emit)
}

func (b *backend) Subscribe(ctx context.Context, r *bridgev1.SubscribeRequest, emit frame.Sink) error {
	return b.subscribe(ctx, r, emit)
}

func (b *backend) WatchSessions(ctx context.Context, r *bridgev1.WatchSessionsRequest, open func() error,
	emit func(*bridgev1.WatchSessionsResponse) error,
) error {
	return b.watch(ctx, r, open, emit)
}

// WatchTelemetry sends a heartbeat, and then what the test gives.
func (b *backend) WatchTelemetry(
	ctx context.Context, _ *bridgev1.WatchTelemetryRequest, send func(*bridgev1.WatchTelemetryResponse) error,
) error {
	next := &bridgev1.WatchTelemetryResponse{}
	for {
		if err := send(next); err != nil {
			return err
		}
		select {
		case next = <-b.telemetry:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *backend) Attach(ctx context.Context, start *bridgev1.AttachStart) (rpc.Attachment, error) {
	return b.attach(ctx, start)
}

func (*backend) Leave(context.Context, *bridgev1.LeaveRequest) (*bridgev1.LeaveResponse, error) {
	return &bridgev1.LeaveResponse{Left: true}, nil
}

// sessions is a client of SessionService on a replica.
func (r *replica) sessions() bridgev1.SessionServiceClient {
	return bridgev1.NewSessionServiceClient(r.Conn)
}

// events is a client of EventService on a replica.
func (r *replica) events() bridgev1.EventServiceClient { return bridgev1.NewEventServiceClient(r.Conn) }

// servedBy returns the node that serves GetSession for a session.
func (r *replica) servedBy(tb testing.TB, session string, options ...grpc.CallOption) string {
	tb.Helper()
	reply, err := r.sessions().GetSession(tb.Context(), &bridgev1.GetSessionRequest{SessionId: session}, options...)
	if err != nil {
		tb.Fatalf("%s: %v", session, err)
	}
	return reply.GetSession().GetName()
}
