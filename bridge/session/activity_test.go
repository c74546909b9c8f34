package session

import (
	"cmp"
	"errors"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

func TestActivity(t *testing.T) {
	t.Parallel()
	const nothing = `{"hasActiveWork":false}`
	unknown, broken := fault.New(fault.MethodUnknown, "no such method"), errors.New("broken")
	for name, test := range map[string]struct {
		activity, tasks, schedule string
		err                       error // of every call
		working, run, any, failed bool
	}{
		"nothing":                   {activity: nothing},
		"work":                      {activity: `{"hasActiveWork":true}`, working: true, any: true},
		"a task that runs":          {activity: nothing, tasks: `{"tasks":[{"status":"completed"},{"status":"running"}]}`, run: true, any: true},
		"a task that is idle":       {activity: nothing, tasks: `{"tasks":[{"status":"idle"}]}`, any: true},
		"a task that has ended":     {activity: nothing, tasks: `{"tasks":[{"status":"completed"}]}`},
		"a schedule":                {activity: nothing, schedule: `{"entries":[{}]}`, any: true},
		"a CLI without the methods": {err: unknown, working: true},
		"a CLI that fails":          {err: broken, working: true, any: true, failed: true},
		"an answer that is no JSON": {activity: `[`, working: true, any: true, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := map[string]string{
				"session.metadata.activity": test.activity, "session.tasks.list": test.tasks, "session.schedule.list": test.schedule,
			}
			p := &puppet{answer: func(method string) (string, error) { return cmp.Or(answers[method], "{}"), test.err }}
			s := onPuppet(t, p)
			if got, err := s.agentWorks(t.Context(), p, true); got != test.working || (err != nil) != test.failed {
				t.Errorf("the agent works: %v, %v", got, err)
			}
			if got, _ := s.tasksIn(t.Context(), p, "running"); got != test.run {
				t.Errorf("a task runs: %v", got)
			}
			if got, err := s.anythingRuns(t.Context(), p); got != test.any || (err != nil) != test.failed {
				t.Errorf("anything goes on: %v, %v", got, err)
			}
		})
	}
}
