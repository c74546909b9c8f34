package session

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// Which directories the approval of a path opens, only the CLI knows: the path, what it
// leads to, or, on 1.0.81, the directory of a file that is not there yet. So it is asked for
// its list before the answer and when the tool is done; it changes some time between.

// pathsList and pathsAdd are the methods for the directories that a session's tools may use.
const (
	pathsList = "session.permissions.paths.list"
	pathsAdd  = "session.permissions.paths.add"
)

// opening is the approval of a path whose outcome is not known yet.
type opening struct {
	callback string
	tool     string // the tool call that it is for
	runtime  Runtime
	before   []string // the directories that were open
}

// opens notes that an answer which is about to be given opens directories, if it does.
func (s *Session) opens(ctx context.Context, p *callback.Pending, answer callback.Reply) {
	if _, ok := forSession(p, answer, "path"); !ok {
		return
	}
	var asked struct{ PromptRequest struct{ ToolCallID string } }
	if json.Unmarshal(p.Params, &asked) != nil {
		return
	}
	one := opening{callback: p.ID, tool: asked.PromptRequest.ToolCallID}
	err := s.retried(ctx, func(rt Runtime) (err error) {
		one.runtime = rt
		one.before, err = s.directories(ctx, rt)
		return err
	})
	if err != nil {
		return // the answer will fail as well, or what it opens is asked for again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openings = append(s.openings, one)
}

// opensNot takes back what opens noted: the answer was not taken.
func (s *Session) opensNot(p *callback.Pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openings = slices.DeleteFunc(s.openings, func(o opening) bool { return o.callback == p.ID })
}

// openedBy finds out which directories have been opened, when the tool that wanted them has
// ended or all is at rest. The caller holds mu.
func (s *Session) openedBy(rec *journal.Record) {
	if len(s.openings) == 0 {
		return
	}
	var d struct{ ToolCallID string }
	switch rec.Type {
	case "tool.execution_complete":
		if !dataOf(rec, &d) {
			return
		}
	case "session.idle":
	default:
		return
	}
	s.openings = slices.DeleteFunc(s.openings, func(o opening) bool {
		if over := rec.Type == "session.idle" || o.tool == d.ToolCallID; !over {
			return false
		}
		if s.runtime == o.runtime { // of one that ended nothing can be learned
			s.host.Go(func(ctx context.Context) { s.keepOpen(ctx, o) })
		}
		return true
	})
}

// keepOpen remembers the directories that have been opened since.
func (s *Session) keepOpen(ctx context.Context, o opening) {
	defer s.Hold()()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	now, err := s.directories(ctx, o.runtime)
	if err != nil {
		s.host.Logger().Warn("approved directories not known, they will be asked for again", "session_id", s.id, "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, dir := range now {
		if slices.Contains(o.before, dir) {
			continue
		}
		var params Object
		params.SetString("path", dir)
		s.rememberApproval(setting{"approval of " + dir, pathsAdd, params})
	}
}

// directories lists those that the session's tools may use.
func (s *Session) directories(ctx context.Context, rt Runtime) ([]string, error) {
	result, _, err := s.call(ctx, rt, pathsList, nil)
	if err != nil {
		return nil, err
	}
	var list struct{ Directories []string }
	err = json.Unmarshal(result, &list)
	return list.Directories, err
}
