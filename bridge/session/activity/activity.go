// Package activity asks the CLI what goes on in a session that no event shows. It has no state, lock
// or goroutine.
package activity

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// taskTimeout bounds the question which tasks there are.
const taskTimeout = 10 * time.Second

// Call makes a call about the session that takes no parameters.
type Call func(ctx context.Context, method string) (json.RawMessage, error)

// Working reports whether the agent works. A CLI that cannot tell counts as working.
func Working(ctx context.Context, call Call) bool {
	activity := work{HasActiveWork: true}
	return query(ctx, call, "session.metadata.activity", &activity) == nil && activity.HasActiveWork
}

// Idle reports whether the CLI says that the agent does not work.
func Idle(ctx context.Context, call Call) bool {
	activity := work{HasActiveWork: true}
	return query(ctx, call, "session.metadata.activity", &activity) == nil && !activity.HasActiveWork
}

// TasksRun reports whether background tasks run: agents, or shells that the agent began. A CLI that
// cannot tell has none.
func TasksRun(ctx context.Context, call Call) bool {
	found, err := tasksIn(ctx, call, "running")
	return err == nil && found
}

// Any reports whether anything goes on in the session that unloading it would end: work, a task or a
// schedule.
func Any(ctx context.Context, call Call) (bool, error) {
	var activity work
	if err := query(ctx, call, "session.metadata.activity", &activity); err != nil || activity.HasActiveWork {
		return true, err
	}
	if found, err := tasksIn(ctx, call, "running", "idle"); err != nil || found {
		return true, err
	}
	var schedule struct{ Entries []struct{} }
	err := query(ctx, call, "session.schedule.list", &schedule)
	return len(schedule.Entries) > 0, err
}

type work struct{ HasActiveWork bool }

// tasksIn reports whether background tasks are in one of some states.
func tasksIn(ctx context.Context, call Call, states ...string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	var list struct{ Tasks []struct{ Status string } }
	if err := query(ctx, call, "session.tasks.list", &list); err != nil {
		return false, err
	}
	for _, t := range list.Tasks {
		if slices.Contains(states, t.Status) {
			return true, nil
		}
	}
	return false, nil
}

// query leaves into as it is if the CLI does not have the method.
func query(ctx context.Context, call Call, method string, into any) error {
	result, err := call(ctx, method)
	if fault.ReasonOf(err) == fault.MethodUnknown {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(result, into); err != nil {
		return fault.Wrap(err, fault.CLIProtocolError, "reading the result of %s", method)
	}
	return nil
}
