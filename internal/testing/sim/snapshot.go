package sim

import (
	"fmt"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// checkSnapshot: the session shows callers what is the case.
func (w *world) checkSnapshot() {
	got := w.s.Snapshot()
	state, at := w.s.Loader().State(), w.s.Journal().Last()
	w.mu.Lock()
	defer w.mu.Unlock()
	wrong := func(what string, is, must any) {
		w.failures = append(w.failures, fmt.Sprintf("the session shows %s %v, and it is %v", what, is, must))
	}
	loaded := got.GetState() == bridgev1.SessionState_SESSION_STATE_LOADED
	if got.GetSessionId() != "s1" || loaded != (state == session.Loaded) {
		wrong("itself as", got, state)
	}
	if ended := w.rt == nil || w.rt.err != nil; loaded && ended {
		wrong("that it is", got.GetState(), "in no process")
	}
	if version := got.GetCliVersion(); loaded && version != cliVersion || !loaded && version != "" {
		wrong("the version", version, state)
	}
	if p := (journal.Position{Epoch: got.GetPosition().GetEpoch(), Seq: got.GetPosition().GetSeq()}); p != at {
		wrong("the position", p, at)
	}
	if got.GetOnInterruption() == bridgev1.OnInterruption_ON_INTERRUPTION_UNSPECIFIED {
		wrong("what follows an interruption:", got.GetOnInterruption(), "one of both")
	}
	if continues := got.GetOnInterruption() == bridgev1.OnInterruption_ON_INTERRUPTION_CONTINUE; continues != w.variant.continues() {
		wrong("what follows an interruption:", got.GetOnInterruption(), w.variant.continues())
	}
	if name := got.GetClientName(); !slices.Contains(w.clients.now, name) {
		wrong("the client", name, w.clients.now)
	}
	if label := got.GetLabels()["l"]; !w.settings.labels.may(label) {
		wrong("the label", label, w.settings.labels.now)
	}
	if !w.failed && !w.owner.lost && got.GetStorageProblem() != "" {
		wrong("a problem of the storage:", got.GetStorageProblem(), "none")
	}
	if ended := state == session.Disconnected || state == session.Deleted; ended && w.disconnecting+w.deletion.underway > 0 {
		return // the caller who ends it learns that when the disk has worked
	}
	w.checkShown(got.GetParticipants())
}

// checkShown compares the participants that the session shows with those that there are. The caller holds the world's lock.
func (w *world) checkShown(shown []*bridgev1.Participant) {
	byID := map[string]*bridgev1.Participant{}
	for _, p := range shown {
		byID[p.GetParticipantId()] = p
	}
	if len(byID) != len(shown) || len(shown) > 2*(1+w.restarts) {
		w.failures = append(w.failures, fmt.Sprintf("the session shows %d participants: %v", len(shown), shown))
	}
	for _, s := range w.seats {
		p := byID[s.id]
		switch {
		case s.id == "" || s.presence == joining:
			continue
		case s.sits() != (p != nil) && (s.presence != gone || w.restarts == 0):
			w.failures = append(w.failures, fmt.Sprintf("the participant %c is shown as %v, and it is %v", s.tool, p, s.presence))
		case p == nil || s.presence == gone:
			continue
		case p.GetConnected() != (s.presence == present):
			w.failures = append(w.failures, fmt.Sprintf("the participant %c is shown as connected: %v", s.tool, p.GetConnected()))
		}
		var tools []string
		for _, t := range w.brings(s).Tools {
			tools = append(tools, t.Name)
		}
		if s.extra != "" {
			tools = append(tools, s.extra)
		}
		if name := w.command(s); name != "" && !slices.Equal(p.GetCommands(), []string{name}) {
			w.failures = append(w.failures, fmt.Sprintf("the participant %c is shown with the commands %v", s.tool, p.GetCommands()))
		}
		if own := len(w.own(s)) > 0; !s.unsure && own != slices.Equal(p.GetCanvases(), []string{s.canvas()}) {
			w.failures = append(w.failures, fmt.Sprintf("the participant %c is shown with the canvases %v", s.tool, p.GetCanvases()))
		}
		if p.GetName() != s.name() || !s.unsure && !slices.Equal(p.GetTools(), tools) {
			w.failures = append(w.failures, fmt.Sprintf("the participant %c is shown as %v", s.tool, p))
		}
	}
}
