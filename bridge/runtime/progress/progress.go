// Package progress tells a waiting caller that the CLI is being installed or started.
//
// The caller of Watch passes the returned context on; the code that installs or starts the CLI, or waits for that,
// calls Report with it. So the packages in between need no parameter.
package progress

import (
	"context"
	"sync"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Stage is a part of making the CLI ready. The zero value is before the first one.
type Stage int

// The stages, in their order.
const (
	Installing Stage = iota + 1
	Starting
)

// Proto returns the stage as a message for callers.
func (s Stage) Proto() *bridgev1.Progress {
	if s == Installing {
		return &bridgev1.Progress{
			Stage:  bridgev1.ProgressStage_PROGRESS_STAGE_INSTALLING_CLI,
			Detail: "installing the Copilot CLI (about 190 MB, once)",
		}
	}
	return &bridgev1.Progress{
		Stage: bridgev1.ProgressStage_PROGRESS_STAGE_STARTING_CLI, Detail: "starting the Copilot CLI",
	}
}

// watcher is the value of a context of Watch.
type watcher struct {
	mu    sync.Mutex
	last  Stage
	over  bool
	enter func(Stage)
}

type watcherKey struct{}

// Watch returns a context whose stages are reported to enter until stop is called: each stage once, none after a later
// one, and never two at the same time. stop waits for a call of enter that is under way. enter replaces that of an
// outer Watch.
func Watch(ctx context.Context, enter func(Stage)) (_ context.Context, stop func()) {
	w := &watcher{enter: enter}
	return context.WithValue(ctx, watcherKey{}, w), w.stop
}

func (w *watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

// Report tells the caller of Watch, if any, that the CLI has reached a stage. It does nothing for the zero Stage.
func Report(ctx context.Context, stage Stage) {
	w, ok := ctx.Value(watcherKey{}).(*watcher)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over && stage > w.last {
		w.last = stage
		w.enter(stage)
	}
}

// Group tells several callers of the stages of one thing that all of them wait for. The zero value is ready to use. It
// is safe for concurrent use.
type Group struct {
	mu      sync.Mutex
	stage   Stage
	members map[*member]struct{}
}

type member struct{ report func(Stage) }

// Join adds the caller of Watch for ctx to the group, and reports the current stage to it. leave removes it.
func (g *Group) Join(ctx context.Context) (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.members == nil {
		g.members = map[*member]struct{}{}
	}
	m := &member{func(stage Stage) { Report(ctx, stage) }}
	g.members[m] = struct{}{}
	m.report(g.stage)
	return func() { g.remove(m) }
}

func (g *Group) remove(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if delete(g.members, m); len(g.members) == 0 {
		g.stage = 0
	}
}

// Report reports a stage to all members. What they do about it must not block.
func (g *Group) Report(stage Stage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stage = stage
	for m := range g.members {
		m.report(stage)
	}
}
