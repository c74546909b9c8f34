package harness

import (
	"slices"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Written waits until the CLI has written all events of a session to its history. The CLI does so a little later, and
// unwritten events are lost with it. It reports nothing, so that one has to look.
func (st *Scripted) Written(s *copilot.Session) {
	st.T.Helper()
	session := &TestSession{s, st.Fixture}
	var told []string
	for ev, err := range s.History(st.Ctx,
		copilot.WithFilter(&bridgev1.EventFilter{ExcludeEphemeral: true, IncludeLarge: true})) {
		if err != nil {
			st.T.Fatal(err)
		}
		if !ev.GetEvent().GetEphemeral() {
			told = append(told, ev.GetEvent().GetId())
		}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		// The number of lines is no measure: the CLI also writes events that it does not send.
		lacks := map[string]bool{}
		for _, id := range told {
			lacks[id] = true
		}
		for _, one := range session.Record() {
			delete(lacks, one.ID)
		}
		if len(lacks) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-st.Ctx.Done():
			st.T.Fatalf("the CLI has not written %d of %d events", len(lacks), len(told))
		}
	}
}

// Kill kills the CLI, and waits until these sessions' subscribers have been told.
func (st *Scripted) Kill(ids ...string) *bridgev1.RuntimeRestarted {
	st.T.Helper()
	frames := make([]*CallbackWatch, len(ids))
	for i, id := range ids {
		frames[i] = st.Callbacks(id)
	}
	ready := st.Ready()
	if len(ready) == 0 {
		st.T.Fatalf("no runtime to kill: %v", st.Runtimes())
	}
	if err := syscall.Kill(int(ready[0].GetPid()), syscall.SIGKILL); err != nil {
		st.T.Fatal(err)
	}
	var first *bridgev1.RuntimeRestarted
	for _, f := range frames {
		if r := f.Restarted(); first == nil {
			first = r
		}
	}
	return first
}

// Begin sends a prompt and does not wait for anything.
func (st *Scripted) Begin(s *copilot.Session, text string) {
	st.T.Helper()
	if _, err := s.Send(st.Ctx, text); err != nil {
		st.T.Fatalf("send %q: %v", text, err)
	}
}

// Declared is a tool that only Resolve answers for.
func Declared(name string) copilot.Tool {
	return copilot.Tool{Definition: &cliv1.ToolDefinition{
		Name: name, Description: "Waits", SkipPermission: proto.Bool(true),
	}}
}

// Ready lists the runtimes that work.
func (st *Scripted) Ready() []*bridgev1.RuntimeInfo {
	st.T.Helper()
	return slices.DeleteFunc(st.Runtimes(), func(rt *bridgev1.RuntimeInfo) bool {
		return rt.GetState() != bridgev1.RuntimeState_RUNTIME_STATE_READY
	})
}

// Runtimes are all that the server with the sessions has, in any state.
func (st *Scripted) Runtimes() []*bridgev1.RuntimeInfo {
	st.T.Helper()
	c, err := copilot.Dial(st.Ctx, st.Host.sessionsAt())
	if err != nil {
		st.T.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it has done its work
	list, err := c.Runtimes().ListRuntimes(st.Ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil {
		st.T.Fatal(err)
	}
	return list.GetRuntimes()
}
