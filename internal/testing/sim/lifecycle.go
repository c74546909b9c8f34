package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// clients are the values that a member of the session's configuration may have: callers change it.
type clients struct {
	now, saved []string
	// changing: a caller changes it. What the CLI has not accepted is not saved: before is what it was.
	changing bool
	before   []string
	resumes  int // that processes have written down for callers
}

// refusedClient is a value that CLI processes refuse.
const refusedClient = "refused"

// unload has the bridge unload the session if it is idle, and if the CLI says so in time.
func (w *world) unload() {
	l := w.life
	w.do(func() error {
		_, _ = l.s.Loader().Unload(l.ctx, 0)
		return nil
	})
}

// configure has a caller resume the session, which changes its configuration: a member is set or removed. Without it the CLI
// has to load the session again.
func (w *world) configure(n int) {
	w.mu.Lock()
	if w.clients.changing {
		w.mu.Unlock()
		return
	}
	w.ids++
	client := fmt.Sprint("client", w.ids)
	o := session.Opening{}
	switch n % 6 {
	case 4:
		client, o.Removed = "", []string{"clientName"}
	case 5:
		client = refusedClient
	}
	if client != "" {
		o.Config = jsonobj.Object{}
		o.Config.SetString("clientName", client)
	}
	key := ""
	if w.provider.lost {
		key = fmt.Sprint(secretMark, w.ids)
		o.Config = o.Config.Merge(w.provider.credentials(w.variant, key))
	}
	before := w.clients.now
	w.clients.before = before
	w.clients.now, w.clients.changing = append(slices.Clone(before), client), true
	l, crashes, resumes := w.life, w.crashes, w.clients.resumes
	w.mu.Unlock()
	w.do(func() error {
		_, err := l.s.Loader().Resume(l.ctx, o)
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.lives(l) {
			return nil
		}
		w.note("a caller's resume with %q: %v", client, err)
		if err == nil && w.refuse() { // as package manage saves it before the caller is told
			return nil
		}
		w.clients.changing = false
		if err == nil {
			if w.clients.resumes == resumes && w.crashes+w.disconnects == 0 {
				w.failures = append(w.failures, "the history does not get the resume of a caller")
			}
			w.clients.now = []string{client}
			if key != "" {
				w.provider.key.be(key)
				w.provider.lost = false
			}
			w.dirty = true // as package manage does it
			w.storeConfigured(l, before)
			return nil
		}
		w.clients.now = before
		// The CLI may not say in time whether it can be unloaded.
		if w.crashes != crashes || fault.ReasonOf(err) == fault.RuntimeLost || w.disconnects > 0 || client == refusedClient || client == "" || w.lacks(err) || w.isLeaving(err) || w.isRefused(err) {
			return nil
		}
		return err
	})
}

// storeConfigured has the storage of a cluster have a configuration before the caller is told that it is accepted, as package manage
// does it. The caller holds the world's lock.
func (w *world) storeConfigured(l *life, before []string) {
	if !w.clustered {
		return
	}
	w.mu.Unlock()
	err := host{w, l}.Store()
	w.mu.Lock()
	if err != nil && w.lives(l) { // it is not told, and another save may have it
		w.clients.now = append(slices.Clone(before), w.clients.now...)
	}
}

// checkConfigured: the process that has the session has its configuration.
func (w *world) checkConfigured() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.cli; c != nil && c.loaded && !slices.Contains(w.clients.now, c.declared.ClientName) {
		w.failures = append(w.failures, fmt.Sprintf("the CLI has the configuration %q, not %q", c.declared.ClientName, w.clients.now))
	}
}

// resumeLoaded has a process take another configuration of a session that it has. What the configuration lacks stays, unless the
// bridge loads the session: it has not waited for the reply to an earlier load.
func (c *cli) resumeLoaded(r request) {
	if c.refuses(r) {
		return
	}
	before := c.declared
	if token := r.params.GitHubToken; token != "" && token == before.GitHubToken && !r.loads && !c.refused && !c.w.settings.changing && !c.w.clients.changing {
		c.w.failures = append(c.w.failures, "a process is given a token that it has")
	}
	c.declared = r.params.declaration
	if c.declared.ClientName == "" && !r.params.ContinuePendingWork {
		c.declared.ClientName = before.ClientName
	}
	if len(c.declared.Commands) == 0 {
		c.declared.Commands = before.Commands
	}
	if c.declared.GitHubToken == "" {
		c.declared.GitHubToken = before.GitHubToken
	}
	if !r.params.DisableResume {
		if c.w.cli == c && !c.w.clients.changing && !r.params.ContinuePendingWork && !r.loads { // behind a shutdown one does not go on
			c.w.failures = append(c.w.failures, "the history gets a resume that no caller has asked for")
		}
		c.w.clients.resumes++
		c.open(r, func() {
			c.emit("session.resume", fmt.Sprintf(`{"eventCount":1,"continuePendingWork":false,"sessionWasActive":%v}`, c.active()), -1)
		})
		return
	}
	c.reply(r, loaded)
}

// refuses refuses a configuration.
func (c *cli) refuses(r request) bool {
	if r.params.ClientName != refusedClient && r.params.Provider.BaseURL != refused {
		return false
	}
	c.refused = true
	c.refuse(r, "the client is not known")
	return true
}

func (c *cli) refuse(r request, why string) {
	c.replies = append(c.replies, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":%q}}`, r.id,
		fmt.Sprintf("Request %s failed with message: %s", r.method, why)))
}

// destroy has a process write the session down and forget it.
func (c *cli) destroy(r request) {
	if (c.active() || len(c.questions) > 0) && c.w.disconnecting == 0 {
		c.w.failures = append(c.w.failures, "the session is unloaded while it works")
	}
	if c.phase == aborting {
		c.reply(c.abort, `{}`)
	}
	if !c.shut {
		c.emit("session.shutdown", `{"shutdownType":"routine"}`, -1)
	}
	c.write()
	lost := map[string]bool{}
	for id := range c.questions {
		lost[id] = true
	}
	maps.Copy(lost, c.lost)
	c.endCommands()
	// That of a participant that has left is closed when its callbacks have their answers, and the session ends with it.
	if slices.ContainsFunc(c.satellites, func(s *satellite) bool { return s.joined && c.w.there(s.participant) }) {
		c.w.failures = append(c.w.failures, "the session is destroyed while a connection of a participant has it")
	}
	*c = cli{
		w: c.w, life: c.life, pipe: c.pipe, requests: c.requests, replies: c.replies, copies: c.copies, questions: map[string]*toolCall{}, lost: lost,
		closed: true, satellites: c.satellites, canvases: c.canvases, models: c.forgetModels(),
	}
	c.reply(r, `{"success":true}`)
}

// loaded is the result of the calls that load the session.
const loaded = `{"sessionId":"s1"}`
