package sim

import (
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// removeMethod removes the message that waits for the agent and came last.
const removeMethod = "session.queue.removeMostRecent"

// editQueue has a caller remove the message that the CLI has received last. From then on the bridge does not know which of the
// others still wait, and gives none of them to another process.
func (w *world) editQueue() {
	w.mu.Lock()
	l, crashes := w.life, w.crashes
	edit := func() {
		for _, p := range w.prompts {
			p.edited = p.edited || !p.over
		}
	}
	edit()
	before := map[*prompt]bool{} // those that other calls have removed
	for _, p := range w.prompts {
		before[p] = p.withdrawn
	}
	w.mu.Unlock()
	abandoned := false
	c := w.begin(func() { abandoned = true })
	w.do(func() error {
		result, _, err := l.s.Loader().Invoke(c, removeMethod, nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.returned(c)
		edit() // some may have been sent meanwhile
		for _, p := range w.prompts {
			p.removed = p.removed || p.withdrawn && !before[p] && err == nil && w.lives(l)
		}
		w.note("%s: %s %v", removeMethod, result, err)
		if !w.lives(l) || abandoned || w.crashes != crashes || w.isGone(err) || fault.ReasonOf(err) == fault.RuntimeLost {
			return nil
		}
		return err
	})
}

// removeLast removes the last message that waits.
func (c *cli) removeLast(r request) {
	n := len(c.queue)
	if n == 0 {
		c.reply(r, `{"removed":false}`)
		return
	}
	in := c.queue[n-1]
	c.queue = slices.Clone(c.queue[:n-1])
	p := c.w.prompt(in.n)
	p.fates = append(p.fates, "ABORTED")
	p.abortable, p.withdrawn = true, true
	c.w.stop.called = c.w.stop.called || in.n == continuation
	c.reply(r, `{"removed":true}`)
}
