package session

import (
	"context"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// taskTimeout bounds the question which tasks there are.
const taskTimeout = 10 * time.Second

// anythingRuns asks the CLI whether anything goes on in the session that unloading it would end: work, a task or a schedule.
func (s *Session) anythingRuns(ctx context.Context, rt Runtime) (bool, error) {
	if works, err := s.agentWorks(ctx, rt, false); err != nil || works {
		return true, err
	}
	if found, err := s.tasksIn(ctx, rt, "running", "idle"); err != nil || found {
		return true, err
	}
	var schedule struct{ Entries []struct{} }
	err := s.queryIfKnown(ctx, rt, "session.schedule.list", &schedule)
	return len(schedule.Entries) > 0, err
}

// agentWorks asks the CLI whether the agent works. unknown is the answer of a CLI that cannot tell.
func (s *Session) agentWorks(ctx context.Context, rt Runtime, unknown bool) (bool, error) {
	activity := struct{ HasActiveWork bool }{unknown}
	err := s.queryIfKnown(ctx, rt, "session.metadata.activity", &activity)
	return activity.HasActiveWork, err
}

// tasksIn reports whether background tasks, agents or shells that the agent began, are in one of some states. A CLI that
// cannot tell has none.
func (s *Session) tasksIn(ctx context.Context, rt Runtime, states ...string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	var list struct{ Tasks []struct{ Status string } }
	err := s.queryIfKnown(ctx, rt, "session.tasks.list", &list)
	return slices.ContainsFunc(list.Tasks, func(t struct{ Status string }) bool { return slices.Contains(states, t.Status) }), err
}

// queryIfKnown is query without parameters. It leaves into as it is if the CLI does not have the method.
func (s *Session) queryIfKnown(ctx context.Context, rt Runtime, method string, into any) error {
	err := s.query(ctx, rt, method, nil, into)
	if fault.ReasonOf(err) == fault.MethodUnknown {
		return nil
	}
	return err
}
