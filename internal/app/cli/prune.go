package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const pruneUsage = `Deletes sessions of the server that have not been used for some time, with their history.

  copilot-grpc sessions prune --idle 720h [--dry-run]

Not deleted are sessions that are in use or shared, and sessions of the CLI that were never opened through the server.
prune prints the ids of the deleted sessions, the longest unused first.`

func setupPrune(p *program, f *flags) action {
	c := p.connection(f)
	idle := f.Duration("idle", 0, "delete sessions whose last use was longer ago than this `duration`, such as 720h; "+
		"at least 1m")
	dryRun := f.Bool("dry-run", false, "delete nothing, and print what would be deleted")
	most := f.Int32("max", 1000, "delete at most this `number` of sessions")
	return func(ctx context.Context, _ []string) error {
		if *idle == 0 {
			return usageError{errors.New("want --idle, for example 720h")}
		}
		return c.with(ctx, func(client *copilot.Client) error {
			reply, err := client.Sessions().PruneSessions(ctx, &bridgev1.PruneSessionsRequest{
				IdleFor: durationpb.New(*idle), DryRun: *dryRun, MaxSessions: *most,
			})
			if err != nil {
				return err
			}
			return p.pruned(reply)
		})
	}
}

// pruned prints what was deleted, and what was not.
func (p *program) pruned(reply *bridgev1.PruneSessionsResponse) error {
	for _, id := range reply.GetSessionIds() {
		fmt.Fprintln(p.stdout, id)
	}
	for _, one := range reply.GetFailures() {
		subject := cmp.Or(one.GetSessionId(), "the sessions of a replica")
		fmt.Fprintf(p.stderr, "not deleted: %s: %s\n", subject, one.GetFailure().GetMessage())
	}
	if len(reply.GetFailures()) > 0 {
		return errors.New("not all sessions could be deleted")
	}
	return nil
}
