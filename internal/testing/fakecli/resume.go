package fakecli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
)

// restore rebuilds a session from its events. Configuration is not among them:
// as with the real CLI it is gone unless given again.
func (s *session) restore(events []stored) {
	s.events, s.saving = slices.Clone(events), true
	s.file = s.cli.archive.create(s.id)
	s.created, s.modified = events[0].Timestamp, events[len(events)-1].Timestamp
	s.last = events[len(events)-1].ID
	for _, e := range events {
		s.recall(e)
	}
}

// recall takes from one event the state that outlives a process: the title, the working directory, and the pending
// questions.
func (s *session) recall(e stored) {
	var p struct {
		Content, RequestID string
		Context            struct{ Cwd string }
	}
	_ = json.Unmarshal(e.Data, &p)
	switch e.Type {
	case "session.start":
		if s.config.WorkingDirectory == "" {
			s.config.WorkingDirectory = p.Context.Cwd
		}
	case "user.message":
		if s.title == "" {
			s.title = p.Content
		}
	case "external_tool.requested":
		s.recallPending(p.RequestID, pendingTool, e.Data)
	case "permission.requested":
		s.recallPending(p.RequestID, pendingPermission, e.Data)
	case "external_tool.completed", "permission.completed":
		s.forget(func(w *pending) bool { return w.id == p.RequestID })
	case "abort", "assistant.turn_end":
		s.forget(func(*pending) bool { return true })
	}
}

func (s *session) recallPending(id, kind string, info json.RawMessage) {
	s.restored = append(s.restored, &pending{id: id, kind: kind, info: info, answer: make(chan json.RawMessage, 1)})
}

func (s *session) forget(which func(*pending) bool) {
	s.restored = slices.DeleteFunc(s.restored, which)
}

// continueWork makes what an earlier process asked answerable again, under its
// old ids; once all is answered the turn goes on. The lock is held.
func (s *session) continueWork() {
	if len(s.restored) == 0 {
		return
	}
	asked := s.restored
	s.restored, s.running = nil, true
	for _, w := range asked {
		s.waiting[w.id] = w
	}
	s.start(func(ctx context.Context) {
		a := &answering{session: s, ctx: ctx, interaction: "continued"}
		errs := make([]error, len(asked))
		var answers sync.WaitGroup
		for i, w := range asked {
			answers.Go(func() { errs[i] = a.takeUp(w) })
		}
		answers.Wait()
		if errors.Join(errs...) == nil {
			a.end(nil)
			a.run([]Turn{{Text: "Continued."}})
		} else {
			a.end(errs[0])
		}
		s.work(ctx)
	})
}

// takeUp finishes one tool call that an earlier process began.
func (a *answering) takeUp(w *pending) error {
	var asked struct {
		ToolCallID, ToolName string
		Arguments            json.RawMessage
		PermissionRequest    struct {
			ToolCallID, ToolName string
			Args                 json.RawMessage
		}
	}
	_ = json.Unmarshal(w.info, &asked)
	answer, err := a.session.await(a.ctx, w)
	if err != nil {
		return err
	}
	if w.kind == pendingTool {
		a.session.say("external_tool.completed", obj("requestId", w.id), false)
		a.complete(asked.ToolCallID, readOutcome(answer))
		return nil
	}
	callID := asked.PermissionRequest.ToolCallID
	result, refusal := decide(answer)
	a.session.say("permission.completed", obj("requestId", w.id, "toolCallId", callID, "result", result), false)
	if refusal != nil {
		a.complete(callID, *refusal)
		return nil
	}
	outcome, err := a.external(&Tool{Name: asked.PermissionRequest.ToolName, Arguments: asked.PermissionRequest.Args},
		callID)
	if err == nil {
		a.complete(callID, outcome)
	}
	return err
}
