package sim

import (
	"errors"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// grace is the time for which a participant that has lost its connection may return.
const grace = 90 * time.Second

// seat is the place of a participant, who may lose the connection, come back, leave and join again.
type seat struct {
	tool        rune
	id, token   string
	participant *roster.Participant
	presence    presence
	lost        time.Time // when it lost its connection
	// deaf: it handles no callbacks but those of its tools and commands. extra is another tool that it has.
	deaf, plain bool // plain: it has no canvas
	extra       string
	// unsure: the bridge ended since it joined, and may have saved a change or not. doubtful: it is changing whether it handles
	// callbacks, or the bridge ended amid that.
	unsure, doubtful bool
	// kept: the bridge has begun with its place.
	kept   bool
	stream *stream // that it had last
}

// presence is what a participant is to the session.
type presence uint8

const (
	gone    presence = iota
	joining          // the session may have it, or not yet
	present
	away // it has lost its connection
)

// name is what a participant calls itself.
func (s *seat) name() string { return "participant " + string(s.tool) }

// grace is that of a participant. No two are equal, since timers that fire at once do so in any order.
func (s *seat) grace() time.Duration { return grace - time.Duration(s.tool) }

// sits reports whether the session must have a participant in its place.
func (s *seat) sits() bool {
	return s.presence == present || s.presence == away && time.Since(s.lost) < s.grace()
}

// seatsOf are the tools of participants.
var seatsOf = []rune{callersTool, permitted}

// brings is what a participant brings.
func (w *world) brings(s *seat) roster.Brings {
	b := roster.Brings{Name: s.name(), Identity: s.name(), Handling: asks, Grace: s.grace()}
	if w.variant.own() == 0 {
		b.Tools = []config.Tool{tool(s.tool)}
	}
	b.Own = w.own(s)
	if name := w.command(s); name != "" {
		b.Commands = []config.Command{{Name: name, JSON: fmt.Appendf(nil, `{"name":%q}`, name)}}
	}
	return b
}

// fill has the participants join.
func (w *world) fill() {
	if !w.variant.attended() {
		return
	}
	for _, kind := range seatsOf {
		s := &seat{tool: kind}
		w.seats = append(w.seats, s)
		w.join(s)
		if !w.settle(func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return s.presence == present
		}) {
			w.fail("the participant %c cannot join", kind)
		}
	}
}

// join has a participant join, or come back to its place if the session still has that.
func (w *world) join(s *seat) {
	l := w.life
	w.mu.Lock()
	had := s.presence != gone // a place, of which the token may still be good
	s.presence = joining
	w.changes++
	w.mu.Unlock()
	l.tasks.Go(func() {
		for range reviveTries {
			if w.joins(l, s) {
				return
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.lives(l) {
			return
		}
		s.unsure = true
		if s.presence = gone; had && s.token != "" {
			s.presence, s.lost = away, time.Now()
		}
		w.changes++
		w.orphan()
	})
	synctest.Wait()
}

// joins tries once to join, and reports whether that is over.
func (w *world) joins(l *life, s *seat) bool {
	joining, st := w.joining(s)
	j, err := l.s.Participants().Join(l.ctx, joining)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.lives(l) {
		return true
	}
	w.note("the participant %c joins: %v", s.tool, err)
	w.changes++
	switch reason := fault.ReasonOf(err); {
	case err == nil:
		if !st.placed {
			w.failures = append(w.failures, fmt.Sprintf("the participant %c has no place", s.tool))
		}
		s.stream = st
		s.id, s.token, s.participant, s.presence = j.Participant.ID, j.Participant.Token, j.Participant, present
		s.deaf, s.extra, s.unsure, s.doubtful, s.kept = false, "", false, false, false
	case w.isLeaving(err):
	case reason == fault.ParticipantNotFound, w.isGone(err):
		if s.kept && s.token != "" && w.disconnects == 0 && time.Since(w.began) < s.grace() {
			w.failures = append(w.failures, fmt.Sprintf("the place of the participant %c was saved, and is gone", s.tool))
		}
		s.token = ""
	case w.lacks(err), w.isRefused(err), reason == fault.RuntimeLost, reason == fault.Timeout, (reason == fault.ToolNameConflict || reason == fault.CommandNameConflict) && w.restarts > 0: // by a place whose token was lost with the bridge
	default:
		w.failures = append(w.failures, fmt.Sprintf("the participant %c cannot join: %v", s.tool, err))
	}
	w.checkHolder(s, err)
	return err == nil
}

// checkHolder: the error about a name that a place still has, whose token was lost with the bridge, says when the name is free.
func (w *world) checkHolder(s *seat, err error) {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Metadata["holder"] == "" {
		return
	}
	at, err := time.Parse(time.RFC3339, f.Metadata["free_at"])
	if early := w.began.Add(s.grace() - time.Second); err != nil || at.Before(early) || at.After(early.Add(2*time.Second)) {
		w.failures = append(w.failures, fmt.Sprintf("the name of %c is free at %q, and the grace time began at %v", s.tool, f.Metadata["free_at"], w.began))
	}
}

// move has a participant leave, lose its connection, or come back.
func (w *world) move(n int) {
	if len(w.seats) == 0 {
		return
	}
	s := w.seats[n%2]
	w.mu.Lock()
	is, leaves := s.presence, n/2%3 == 0
	switch {
	case is == joining:
		w.mu.Unlock()
		return
	case is == gone, is == away && !leaves:
		s.plain = s.plain != (n%5 < 2)
		w.mu.Unlock()
		w.join(s)
		return
	case is == present && n/6%3 == 2 && w.variant.declares():
		w.mu.Unlock()
		w.resume(s, n)
		return
	case leaves:
		s.presence, s.kept = gone, false
	default:
		s.presence, s.lost = away, time.Now()
	}
	w.losesOwner(s.id, leaves)
	w.note("the participant %c leaves: %v", s.tool, leaves)
	w.changes++
	w.orphan()
	w.mu.Unlock()
	if leaves {
		left := w.s.Participants().LeaveBy(s.token, errConnection)
		ended := !left && w.s.Loader().Usable() != nil // the use of the session, of which its caller is not told yet
		if st := s.stream; is == present && !ended && st.ended != errConnection {
			w.fail("the stream of a participant that leaves ends with %v", st.ended)
		}
	} else {
		w.s.Participants().Lost(s.participant, errConnection)
	}
	synctest.Wait()
}

// orphan notes the callbacks that have no handler any more. The caller holds the world's lock.
func (w *world) orphan() {
	for _, a := range w.order {
		a.orphaned = a.orphaned || a.open && !w.handled(a.p)
	}
}

// declares reports whether the CLI has to know a kind of tool.
func (w *world) declares(kind rune) bool {
	if kind == question || kind == hooked {
		return w.variant.own() == 2 || w.attended() > 0 || kind == question && w.watching == watched
	}
	return w.variant.own() > 0 || slices.ContainsFunc(w.seats, func(s *seat) bool { return s.tool == kind && s.sits() })
}

// attended counts the participants that the session must have, and that handle callbacks.
func (w *world) attended() (n int) {
	for _, s := range w.seats {
		if s.handles() {
			n++
		}
	}
	return n
}

// unknown is a number of handlers that nobody can know.
const unknown = -1

// hookHandlers counts the handlers of a hook. Who joins may have a place already, and who had left when the bridge ended, or
// was about to join, may still have one.
func (w *world) hookHandlers() (n int) {
	joins := func(s *seat) bool { return s.presence == joining || s.doubtful && s.sits() }
	if n = w.attended(); slices.ContainsFunc(w.seats, joins) || w.restarts > 0 && time.Since(w.began) < grace {
		return unknown
	}
	if w.variant.own() == 2 {
		n++
	}
	return n
}

// handled reports whether a callback has a handler.
func (w *world) handled(p *callback.Pending) bool {
	switch p.Kind.Method {
	case callback.ToolRequested:
		return w.declares(rune(p.Tool[0]))
	case callback.CommandExecute:
		return slices.ContainsFunc(w.seats, func(s *seat) bool { return w.command(s) == p.Command && s.sits() }) || w.watching == watched
	}
	if p.For != roster.Everybody && p.For != roster.Itself {
		return slices.ContainsFunc(w.seats, func(s *seat) bool { return s.id == p.For && (s.handles() || p.Kind.Bound && s.sits()) })
	}
	watched := w.watching == watched && slices.Contains(watchedMethods, p.Kind.Method)
	return w.variant.own() == 2 || p.For == roster.Everybody && (w.attended() > 0 || watched)
}

// checkDeclared: the process that has the session knows what its participants need, and nothing of others.
func (w *world) checkDeclared() {
	if slices.ContainsFunc(w.seats, func(s *seat) bool { return s.presence != present }) || w.restarts > 0 {
		for began := time.Now(); len(w.seats) > 0 && time.Since(began) <= grace+time.Second; { // then the places of others are free
			if !w.step(0) {
				w.pass(time.Second)
			}
		}
		for w.step(0) {
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cli == nil || !w.cli.loaded || slices.ContainsFunc(w.seats, func(s *seat) bool { return s.presence == joining }) {
		return
	}
	if w.watching == turning {
		return
	}
	w.checkExtra(w.cli)
	w.checkSatellites(w.cli)
	for _, kind := range []rune{callersTool, permitted, question, hooked} {
		doubtful := func(s *seat) bool { return s.doubtful && s.sits() && (kind == question || kind == hooked) }
		if can, must := w.cli.declared.can(kind), w.declares(kind); can != must && (must || !slices.ContainsFunc(w.seats, doubtful)) {
			w.failures = append(w.failures, fmt.Sprintf("the CLI can call %c: %v, and it must be %v", kind, can, must))
		}
	}
}
