package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// command is the command that a participant declares; "" if it has none.
func (w *world) command(s *seat) string {
	if !w.variant.declares() {
		return ""
	}
	return "do" + string(s.tool)
}

// handles reports whether a participant is known to handle questions, permissions and hooks.
func (s *seat) handles() bool { return !s.deaf && !s.doubtful && s.sits() }

// change has a participant change what it brings: one tool more, a tool that another participant has, or whether it handles
// callbacks.
func (w *world) change(n int) {
	if len(w.seats) == 0 {
		return
	}
	s, other := w.seats[n%2], w.seats[1-n%2]
	w.mu.Lock()
	if s.presence != present || other.presence == joining {
		w.mu.Unlock()
		return
	}
	w.ids++
	tools, extra, deaf := w.brings(s).Tools, s.extra, s.deaf
	var newTools *[]config.Tool
	var newHandling *config.Handling
	taken := false
	switch n / 2 % 4 {
	case 0:
		extra = fmt.Sprint("y", w.ids)
		newTools = new([]config.Tool)
		*newTools = append(tools, config.Tool{Name: extra, JSON: fmt.Appendf(nil, `{"name":%q}`, extra)})
	case 1:
		extra = ""
		newTools = &tools
	case 2:
		deaf = !deaf
		newHandling = &config.Handling{}
		if !deaf {
			newHandling = &asks
		}
	case 3:
		held := w.brings(other).Tools
		if taken = len(held) > 0 && other.presence == present; !taken {
			w.mu.Unlock()
			return
		}
		newTools = &held
	}
	s.presence, s.doubtful = joining, newHandling != nil // the session may have the one or the other
	w.changes++
	w.orphan()
	l, p := w.life, s.participant
	w.mu.Unlock()
	w.do(func() error {
		err := l.s.Participants().Change(l.ctx, p, newTools, newHandling)
		is := slices.ContainsFunc(l.s.Snapshot().GetParticipants(), func(o *bridgev1.Participant) bool { return o.GetParticipantId() == p.ID })
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.lives(l) {
			return nil
		}
		w.note("the participant %c changes to %q, deaf %v: %v", s.tool, extra, deaf, err)
		w.changes++
		s.presence, s.doubtful = present, false
		if !is && w.disconnects > 0 {
			s.presence, s.token = gone, ""
		}
		w.orphan()
		switch reason := fault.ReasonOf(err); {
		case err == nil && taken:
			return fmt.Errorf("the participant %c gets a tool of another one", s.tool)
		case !is && (err == nil || reason == fault.ParticipantNotFound) && w.disconnects == 0:
			return fmt.Errorf("the participant %c has lost its place: %w", s.tool, err)
		case !is && err == nil:
			return fmt.Errorf("the participant %c is told that it has changed, and has no place", s.tool)
		case !is && reason == fault.ParticipantNotFound:
			return nil
		case err == nil:
			s.extra, s.deaf = extra, deaf
			return nil
		case taken && reason == fault.ToolNameConflict, reason == fault.RuntimeLost, reason == fault.Timeout, w.isGone(err):
			return nil
		}
		return err
	})
}

// checkOffered: a callback is offered to those who handle it. The caller holds the world's lock.
func (w *world) checkOffered() {
	registry := w.s.Callbacks().Registry()
	for _, a := range w.order {
		if !a.open || w.life.ended != nil {
			continue
		}
		offered := registry.Offered(a.p)
		for _, s := range w.seats {
			if s.presence == present && w.handledBy(s, a.p) && !slices.Contains(offered, s.id) {
				w.failures = append(w.failures, fmt.Sprintf("callback %s is not offered to %c", a.p.ID, s.tool))
			}
		}
	}
}

// handledBy reports whether a participant handles a callback.
func (w *world) handledBy(s *seat, p *callback.Pending) bool {
	switch {
	case p.Kind.Method == callback.CommandExecute:
		return p.Command == w.command(s)
	case p.Kind.Method == callback.ToolRequested:
		return w.variant.own() > 0 || rune(p.Tool[0]) == s.tool
	}
	if p.Kind.Bound {
		return p.For == s.id
	}
	return (p.For == roster.Everybody || p.For == s.id) && !s.deaf
}

// checkExtra: the process knows the commands and the further tools of those who are there, and no others. The caller holds the
// world's lock.
func (w *world) checkExtra(c *cli) {
	var must, has, commands []string
	for _, s := range w.seats {
		if !s.sits() {
			continue
		}
		if s.extra != "" {
			must = append(must, s.extra)
		}
		if name := w.command(s); name != "" && !slices.ContainsFunc(c.declared.Commands, func(o named) bool { return o.Name == name }) {
			commands = append(commands, name)
		}
	}
	for _, t := range c.declared.Tools {
		if strings.HasPrefix(t.Name, "y") {
			has = append(has, t.Name)
		}
	}
	slices.Sort(must)
	unsure := slices.ContainsFunc(w.seats, func(s *seat) bool { return s.unsure })
	if slices.Sort(has); !unsure && !slices.Equal(must, has) || len(commands) > 0 {
		w.failures = append(w.failures, fmt.Sprintf("the CLI knows the tools %v, not %v, and not the commands %v", has, must, commands))
	}
}

// named is something that a configuration declares.
type named struct{ Name string }

// invoke has a caller run a command of a participant.
func (w *world) invoke(n int) {
	if len(w.seats) == 0 || !w.variant.declares() || w.invoking {
		return
	}
	name := w.command(w.seats[n%2])
	w.mu.Lock()
	w.invoking = true
	l, crashes := w.life, w.crashes
	w.mu.Unlock()
	w.do(func() error {
		result, _, err := l.s.Loader().Invoke(l.ctx, invokeMethod, text1("name", name))
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.lives(l) {
			return nil
		}
		w.invoking = false
		w.note("the command %s ends: %s %v", name, result, err)
		switch reason := fault.ReasonOf(err); {
		case err == nil, w.crashes != crashes, reason == fault.RuntimeLost, w.isGone(err), strings.Contains(err.Error(), noCommand):
			return nil
		}
		return err
	})
}

const invokeMethod = "session.commands.invoke"

// noCommand is in the error of a command that nobody has.
const noCommand = "Unknown command"

// runCommand has the process ask the participant that has declared a command.
func (c *cli) runCommand(r request) {
	if !slices.ContainsFunc(c.declared.Commands, func(o named) bool { return o.Name == r.params.Name }) {
		c.refuse(r, noCommand)
		return
	}
	id := c.w.uuid()
	c.emit("command.execute", fmt.Sprintf(`{"requestId":%q,"command":"/%s now","commandName":%q,"args":"now"}`, id, r.params.Name, r.params.Name), -1)
	c.commands = append(c.commands, running{id, r})
}

// running is a command that waits for its participant.
type running struct {
	id     string
	invoke request
}

// endCommand takes the answer to a command.
func (c *cli) endCommand(r request) {
	for i, run := range c.commands {
		if run.id != r.params.RequestID {
			continue
		}
		c.w.taken(run.id, string(r.params.Error))
		c.commands = slices.Delete(c.commands, i, i+1)
		c.emit("command.completed", fmt.Sprintf(`{"requestId":%q}`, run.id), -1)
		c.reply(r, `{"success":true}`)
		c.reply(run.invoke, `{"kind":"completed"}`)
		return
	}
	c.reply(r, `{"success":false}`)
}

// endCommands ends the commands of a session that the process no longer has.
func (c *cli) endCommands() {
	for _, run := range c.commands {
		c.refuse(run.invoke, "Session not found: s1")
	}
}

// running lists the commands that wait.
func (c *cli) running() (ids []string) {
	for _, run := range c.commands {
		ids = append(ids, run.id)
	}
	return ids
}

// held reports whether a request waits for others: a resume waits for calls in progress, and what comes behind it, for it.
func (c *cli) held(r request) bool {
	if !c.loaded || len(c.commands) == 0 || len(r.method) == 0 {
		return false
	}
	at := slices.IndexFunc(c.requests, func(o request) bool { return strings.HasSuffix(o.method, "session.resume") })
	own := slices.IndexFunc(c.requests, func(o request) bool { return string(o.id) == string(r.id) && o.method == r.method })
	return at >= 0 && own >= at
}
