package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const pruneUsage = `Deletes sessions of the server that have not been used for some time, with their history.

  copilot-grpc prune --idle 720h [--dry-run]

Not deleted are sessions that are in use or shared, and sessions of the CLI that were never opened through the server.
prune prints the ids of the deleted sessions, the longest unused first.`

// pruneOptions are the flags of prune.
type pruneOptions struct {
	target target
	idle   time.Duration
	dryRun bool
	max    int32
}

// newPrune returns the command line of prune.
func newPrune(o *pruneOptions) *flags {
	f := newFlags("prune", "--idle DURATION [flags]", pruneUsage)
	o.target.flags(f)
	f.DurationVar(&o.idle, "idle", 0, "delete sessions whose last use was longer ago than this `duration`, such as 720h; "+
		"at least 1m")
	f.BoolVar(&o.dryRun, "dry-run", false, "delete nothing, and print what would be deleted")
	f.Int32Var(&o.max, "max", 1000, "delete at most this `number` of sessions")
	return f
}

// prune is the command.
func prune(ctx context.Context, p *program, args []string) error {
	var o pruneOptions
	f := newPrune(&o)
	if err := f.parse(p, args); err != nil {
		return err
	}
	switch rest := f.Args(); {
	case len(rest) > 0:
		return usageError{fmt.Errorf("unexpected argument %q", rest[0])}
	case o.idle == 0:
		return usageError{errors.New("want --idle, for example 720h")}
	}
	conn, err := o.target.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	client := copilot.NewClient(conn)
	defer client.Close()
	reply, err := client.Sessions().PruneSessions(ctx, &bridgev1.PruneSessionsRequest{
		IdleFor: durationpb.New(o.idle), DryRun: o.dryRun, MaxSessions: o.max,
	})
	if err != nil {
		return p.failed(err, &o.target)
	}
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
