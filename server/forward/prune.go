package forward

import (
	"cmp"
	"context"

	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// prune serves PruneSessions. It asks one replica after the other, because max_sessions bounds all of them. Unlike a
// list, it does not fail while a replica does not answer: the caller would not learn what the others have deleted.
func (a *asking) prune(ctx context.Context, r *bridgev1.PruneSessionsRequest) (any, error) {
	replicas := a.forwarder.replicas()
	reply, err := a.of(ctx, replicas[0], r, nil)
	if err != nil {
		return nil, err
	}
	all := reply.(*bridgev1.PruneSessionsResponse)
	limit := int(cmp.Or(r.GetMaxSessions(), defaultPageSize))
	for _, peer := range replicas[1:] {
		left := limit - len(all.GetSessionIds()) - len(all.GetFailures())
		if left <= 0 {
			break
		}
		part, reply := proto.CloneOf(r), &bridgev1.PruneSessionsResponse{}
		part.MaxSessions = int32(left) //nolint:gosec // at most maxPageSize
		if _, err := a.of(ctx, peer, part, reply); err != nil {
			all.Failures = append(all.Failures, &bridgev1.PruneFailure{Failure: failureOf(err)})
		}
		all.SessionIds = append(all.SessionIds, reply.GetSessionIds()...)
		all.Failures = append(all.Failures, reply.GetFailures()...)
	}
	nameAll(ctx, replicas)
	return all, nil
}

// failureOf returns the error of a replica, or that there was no answer.
func failureOf(err error) *bridgev1.Failure {
	if failure, told := fault.Failure(err); told {
		return failure
	}
	status := grpcstatus.Convert(err)
	return &bridgev1.Failure{Code: int32(status.Code()), Message: status.Message()} //nolint:gosec // at most 16
}
