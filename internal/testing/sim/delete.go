package sim

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// deletion is what is known of the deletion of the session.
type deletion struct {
	// underway are the calls of callers that have not returned.
	underway int
	// refused: the CLI cannot remove its files.
	refused bool
	// closed: the CLI has ended the session, and could not remove its files.
	closed bool
	// erased: the CLI has removed all that it had of the session.
	erased bool
	// done: a caller was told that the session is deleted.
	done bool
}

// delete has a caller delete the session, one of three times only if it is not in use; then nobody reads it at first. One of four
// times the CLI cannot remove its files.
func (w *world) delete(n int) {
	w.mu.Lock()
	if w.clients.changing || w.deletion.done || w.deletion.underway > 0 {
		w.mu.Unlock()
		return
	}
	w.deletion.underway++
	w.deletion.refused = n%4 == 3
	w.disconnects++
	l, unused := w.life, n%3 == 0 && !w.reader.away
	if unused {
		w.reader.returns++
	}
	w.mu.Unlock()
	remove := (*session.Loader).Delete
	if unused {
		remove = (*session.Loader).DeleteUnused
		l.unfollow()
		synctest.Wait()
		w.mu.Lock()
		w.turns.forget() // it misses notes
		w.mu.Unlock()
	}
	w.do(func() error {
		err := remove(l.s.Loader(), l.ctx, false)
		for err == nil && w.clustered && !w.removes(l) {
			time.Sleep(time.Second) // the caller asks again
		}
		w.mu.Lock()
		lives := w.lives(l)
		if lives {
			w.note("the session is deleted: %v", err)
			if err == nil && w.refuse() { // as package manage removes it before the caller is told
				w.mu.Unlock()
				return nil
			}
			w.deletion.underway--
			w.removed(err)
			if unused {
				w.turns.forget() // it has missed notes
			}
		}
		w.mu.Unlock()
		if lives && unused {
			w.follow()
		}
		return nil
	})
}

// removes has the storage of a cluster remove the session, as package manage does it, and reports whether it answers.
func (w *world) removes(l *life) bool {
	_, answered := l.disks.attempt()
	return answered || l.ctx.Err() != nil
}

// removed notes what a caller is told of its deletion. The caller holds the world's lock.
func (w *world) removed(err error) {
	if err != nil {
		if reason := fault.ReasonOf(err); reason == fault.SessionRefused && !w.deletion.refused {
			w.failures = append(w.failures, "the deletion is refused: "+err.Error())
		}
		return
	}
	if !w.deletion.erased {
		w.failures = append(w.failures, "the session is said to be deleted, and the CLI has it")
	}
	w.deletion.done = true
	w.saved, w.state, w.dirty = nil, nil, false // as package manage does it
	w.stop.done = true
	w.leaveAll()
}

// erase has a process end a session and remove all that it has of it. It cannot remove files that it does not have. If it
// cannot remove those that it has, the session has ended in the process nevertheless.
func (c *cli) erase(r request) {
	w := c.w
	if !c.loaded && !w.disk.known {
		w.erased()
		c.reply(r, `{"success":false,"error":"Session file not found for s1"}`)
		return
	}
	refused := w.deletion.refused && w.disk.known
	if c.loaded {
		lost := maps.Clone(c.lost)
		if lost == nil {
			lost = map[string]bool{}
		}
		for id := range c.questions {
			lost[id] = true
		}
		if c.phase == aborting {
			c.reply(c.abort, `{}`)
		}
		c.endCommands()
		*c = cli{w: w, life: c.life, pipe: c.pipe, requests: c.requests, replies: c.replies, copies: c.copies, questions: map[string]*toolCall{}, lost: lost,
			satellites: c.satellites, canvases: c.canvases, models: c.forgetModels()}
		if c.closed = refused; refused { // the bridge has lost it, as with its process
			w.deletion.closed = true
			w.crashes++
			w.stop.ends++
			w.stop.forgotten = true
			for _, p := range w.prompts {
				p.crashed = p.crashed || !p.over
			}
		}
	}
	if refused {
		c.reply(r, `{"success":false,"error":"Operation not permitted (os error 1)"}`)
		return
	}
	w.erased()
	c.reply(r, `{"success":true}`)
}

// refuseEarlier refuses what came before a resume of a session that the process had closed.
func (c *cli) refuseEarlier(resume request) {
	if !c.closed {
		return
	}
	c.closed = false
	later := c.requests
	c.requests = nil
	for _, r := range later {
		if r.number() < resume.number() && strings.HasPrefix(r.method, "session.") {
			c.refuse(r, "Session not found: s1")
		} else {
			c.requests = append(c.requests, r)
		}
	}
}

// number tells the order of the bridge's requests.
func (r request) number() (n int) {
	_ = json.Unmarshal(r.id, &n) // those of the process have texts
	return n
}

// erased notes that nothing is left of the session but what the bridge has. The caller holds the world's lock.
func (w *world) erased() {
	w.note("the CLI has nothing of the session")
	w.disk = disk{}
	w.deletion.erased = true
	w.disconnecting++ // for good: its callbacks and turns end
	w.stop.called = true
	w.cuts = nil
	for _, p := range w.prompts {
		p.disconnected, p.cut = true, true
	}
}

// checkErased: a session that the CLI has removed can be deleted, also if the process that did it has ended, and nobody
// can use it then.
func (w *world) checkErased() {
	quiet := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.deletion.underway == 0 && !w.clients.changing
	}
	w.settle(quiet)
	w.mu.Lock()
	w.deletion.refused, w.fuse = false, fuse{} // a process that ended now would leave the deletion to another call
	left := w.deletion.erased && !w.deletion.done
	w.mu.Unlock()
	if left && w.s.Loader().State() != session.Disconnected { // the CLI deletes that without the bridge's session
		w.delete(1)
		w.settle(quiet)
		if w.deletion.erased && !w.deletion.done && w.s.Loader().State() != session.Disconnected {
			w.fail("the session cannot be deleted, of which the CLI has nothing")
		}
	}
	if !w.deletion.done {
		return
	}
	loader := w.s.Loader()
	_, loaded := loader.Load(w.ctx)
	_, resumed := loader.Resume(w.ctx, session.Opening{})
	_, joined := w.s.Participants().Join(w.ctx, session.Joining{})
	_, aborted := w.s.Sender().Abort(w.ctx, nil)
	sent := make(chan error, 1)
	w.s.Sender().Start(w.ctx, session.Message{}, func(_ session.Sent, err error) { sent <- err })
	for i, err := range []error{loaded, resumed, joined, aborted, <-sent, loader.Delete(w.ctx, false), loader.DeleteUnused(w.ctx, false)} {
		if fault.ReasonOf(err) != fault.SessionNotFound {
			w.fail("use %d of a deleted session: %v", i, err)
		}
	}
	if text, _ := w.s.Save(nil, nil); text != nil {
		w.fail("a deleted session is saved: %s", text)
	}
	if taken := w.room.taken.Load(); taken > 0 || w.s.Loader().State() != session.Deleted {
		w.fail("a deleted session has %d places and is in the state %v", taken, w.s.Loader().State())
	}
}

// questions change nothing. Who has begun to ask what the CLI does asks to the end.
var questions = []string{
	"session.metadata.activity", "session.permissions.pendingRequests", "session.tasks.list", "session.tools.listPendingRequests",
}

// checkCall notes calls of the bridge for a session that is deleted. The caller holds the world's lock.
func (w *world) checkCall(method string) {
	if w.deletion.done && strings.HasPrefix(method, "session.") && !slices.Contains(questions, method) {
		w.failures = append(w.failures, "the bridge calls "+method+" for a session that is deleted")
	}
}
