package app

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster"
)

const (
	defaultMoveWait = 30 * time.Second
	maxMoveWait     = time.Hour
)

// nodes serves the calls of RuntimeService about the replicas of the cluster. Calls about another replica, or about a
// session of another replica, were relayed to that. It implements rpc.NodeBackend.
type nodes struct {
	mover *mover
	audit audit.Sink
}

func (s nodes) ListNodes(context.Context, *bridgev1.ListNodesRequest) (*bridgev1.ListNodesResponse, error) {
	out := &bridgev1.ListNodesResponse{}
	for _, m := range s.mover.node.Members() {
		out.Nodes = append(out.Nodes, &bridgev1.Node{
			Name: m.Node, Address: m.Address, Sessions: int64(m.Sessions), Draining: m.Draining, Here: m.Here,
			Labels: m.Labels,
		})
	}
	return out, nil
}

// find returns the living replica of a name.
func (s nodes) find(name string) (cluster.Member, error) {
	all := s.mover.node.Members()
	i := slices.IndexFunc(all, func(m cluster.Member) bool { return m.Node == name })
	if i < 0 {
		return cluster.Member{}, fault.New(fault.NodeNotFound, "no living replica has the name %q", name).
			WithField("node").With("node", name)
	}
	return all[i], nil
}

// DrainNode begins or ends the drain of this replica.
func (s nodes) DrainNode(ctx context.Context, r *bridgev1.DrainNodeRequest) (*bridgev1.DrainNodeResponse, error) {
	action := "node.drain"
	if r.GetUndo() {
		action = "node.undrain"
	}
	out, err := s.drain(ctx, r)
	s.record(ctx, audit.Entry{Action: action, Subject: r.GetNode()}, err)
	return out, err
}

func (s nodes) drain(ctx context.Context, r *bridgev1.DrainNodeRequest) (*bridgev1.DrainNodeResponse, error) {
	wait, err := moveWait(r)
	if err != nil {
		return nil, err
	}
	m, err := s.find(r.GetNode())
	if err != nil {
		return nil, err
	}
	if !m.Here { // it joined, or its lease changed, while the call was relayed
		return nil, fault.New(fault.SessionUnavailable, "the replica %q did not get the call: try again", m.Node).
			WithRetry(movePause)
	}
	out := &bridgev1.DrainNodeResponse{}
	if r.GetUndo() {
		s.mover.node.Drain(false)
	} else {
		if _, err := s.mover.heir(""); err != nil {
			return nil, err
		}
		s.mover.node.Drain(true)
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		out.MovedSessions = s.mover.empty(ctx, wait)
	}
	out.RemainingSessions = int64(len(s.mover.directory.Owned()))
	return out, nil
}

// MoveSession moves a session of this replica.
func (s nodes) MoveSession(ctx context.Context, r *bridgev1.MoveSessionRequest) (
	*bridgev1.MoveSessionResponse, error,
) {
	to, err := s.move(ctx, r)
	s.record(ctx, audit.Entry{Action: "session.move", Session: r.GetSessionId(), Subject: to}, err)
	if err != nil {
		return nil, err
	}
	return &bridgev1.MoveSessionResponse{Node: to}, nil
}

// move moves a session, and returns the name of the replica that has it.
func (s nodes) move(ctx context.Context, r *bridgev1.MoveSessionRequest) (string, error) {
	wait, err := moveWait(r)
	if err != nil {
		return "", err
	}
	key := session.Key(caller.From(ctx).Tenant, r.GetSessionId())
	if !slices.Contains(s.mover.directory.Owned(), key) {
		return "", session.NotFound(r.GetSessionId())
	}
	target, err := s.target(key, r.GetNode())
	if err != nil || target.Here {
		return target.Node, err
	}
	if lacks := s.mover.bridge.Credentials(key); len(lacks) > 0 && !r.GetWithoutCredentials() {
		return "", fault.New(fault.CredentialsNeeded, "session %q has credentials that are not stored: %s; "+
			"without_credentials moves it without them", r.GetSessionId(), strings.Join(lacks, ", ")).
			With("session_id", r.GetSessionId()).With("missing", strings.Join(lacks, ","))
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err = s.mover.moveAtRest(ctx, key, wait, func() (cluster.Member, error) { return target, nil })
	return target.Node, err
}

// target returns the replica to which a session moves: that of a name, or for "" any that takes sessions.
func (s nodes) target(key, name string) (cluster.Member, error) {
	if name == "" {
		return s.mover.heir(key)
	}
	m, err := s.find(name)
	if err == nil && !s.mover.node.Fits(m, key) {
		err = sessions.NodesUnfit(s.mover.node.Needs(key)).WithField("node")
	}
	return m, err
}

func moveWait(r interface{ GetWait() *durationpb.Duration }) (time.Duration, error) {
	if r.GetWait() == nil {
		return defaultMoveWait, nil
	}
	return fields.Duration(r.GetWait(), "wait", 0, maxMoveWait)
}

func (s nodes) record(ctx context.Context, e audit.Entry, err error) {
	e.Outcome = audit.Done
	if err != nil {
		e.Outcome, e.Reason = audit.Failed, fault.Name(fault.ReasonOf(err))
	}
	s.audit.Record(ctx, e)
}
