package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
)

// askingTimeout bounds the questions for the names of the CLI's own tools and commands.
const askingTimeout = 10 * time.Second

// BuiltIns returns the names of the CLI's own tools and commands, for a session. It starts a runtime if need be and the
// caller may. A CLI whose sessions have their files with a caller is not asked: then, and after a failure, BuiltIns
// returns the names that a CLI told last, or nil.
func (f *Fleet) BuiltIns(ctx context.Context, e *sessions.Entry) *config.BuiltIns {
	profile, err := f.ProfileNow(e)
	if err != nil || profile.SessionFS != nil {
		return f.builtIns.Load()
	}
	rt, err := f.First(ctx, profile)
	if err != nil {
		return f.builtIns.Load()
	}
	if known := rt.builtIns.Load(); known != nil {
		return known
	}
	select {
	case <-f.askBuiltIns(rt):
	case <-ctx.Done():
	}
	return f.builtIns.Load()
}

// askBuiltIns asks a runtime for the names of its own tools and commands, once for all that want to know them meanwhile.
// The channel is closed at the end. A caller that ends does not end the question, because then its session would stay.
func (f *Fleet) askBuiltIns(rt *Runtime) <-chan struct{} {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.asked != nil {
		return rt.asked
	}
	asked := make(chan struct{})
	begun := f.cfg.Shutdown.Go(func(ctx context.Context) {
		defer close(asked)
		f.learnBuiltIns(ctx, rt)
		rt.mu.Lock()
		defer rt.mu.Unlock()
		rt.asked = nil
	})
	if begun {
		rt.asked = asked
	} else { // the server ends
		close(asked)
	}
	return asked
}

func (f *Fleet) learnBuiltIns(ctx context.Context, rt *Runtime) {
	names, err := rt.askBuiltIns(ctx)
	if err != nil {
		f.log.Warn("the CLI did not list its own tools and commands", "runtime_id", rt.id, "error", err)
		if _, answered := errors.AsType[*rpcconn.Error](err); answered { // it would answer so again
			rt.builtIns.Store(&config.BuiltIns{})
		}
		return
	}
	rt.builtIns.Store(names)
	f.builtIns.Store(names)
}

// allFeatures is the configuration of a session with the features that bring tools of their own, and without files,
// servers and instructions of the host.
const allFeatures = `"requestPermission":true,"requestUserInput":true,"requestElicitation":true,` +
	`"requestExitPlanMode":true,"requestCanvasRenderer":true,"enableSkills":false,"enableFileHooks":false,` +
	`"enableHostGitOperations":false,"skipCustomInstructions":true,"infiniteSessions":{"enabled":false}`

// askBuiltIns asks the CLI for the names of its own tools and commands. It lists them only for a session, and for a
// session without a feature it omits the feature's tools, which another caller's change may bring later. So the bridge
// asks about a session of its own, which has all features and is deleted at once; no caller sees it.
func (rt *Runtime) askBuiltIns(ctx context.Context) (*config.BuiltIns, error) {
	ctx, cancel := context.WithTimeout(ctx, askingTimeout)
	defer cancel()
	conn := rt.Process().Conn()
	var about jsonobj.Object
	about.SetString("sessionId", sessions.NewID())
	features, err := jsonobj.Parse([]byte("{" + allFeatures + "}"))
	if err != nil {
		return nil, err
	}
	if _, err := conn.Call(ctx, "session.create", about.Merge(features).JSON()); err != nil {
		return nil, err
	}
	defer func() {
		if _, err := conn.Call(ctx, "session.delete", about.JSON()); err != nil {
			rt.fleet.log.Warn("a session of the bridge was not deleted", "runtime_id", rt.id, "error", err)
		}
	}()
	tools, err := conn.Call(ctx, "session.tools.getBuiltinDescriptors", about.JSON())
	if err != nil {
		return nil, err
	}
	commands, err := conn.Call(ctx, "session.commands.list", about.JSON())
	if err != nil {
		return nil, err
	}
	return config.NewBuiltIns(tools, commands)
}
