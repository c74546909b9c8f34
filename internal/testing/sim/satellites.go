package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// canvas is the canvas of a participant.
func (s *seat) canvas() string { return "canvas" + string(s.tool) }

// own is what a participant declares that the CLI binds to a connection.
func (w *world) own(s *seat) (o jsonobj.Object) {
	if w.variant.declares() && !s.plain {
		o.Set("canvases", fmt.Appendf(nil, `[{"id":%q}]`, s.canvas()))
	}
	return o
}

// satellite is the connection of a participant to a CLI process.
type satellite struct {
	w           *world
	rt          *runtime
	process     *cli
	participant string
	ask         session.Asker
	ctx         context.Context // of the requests of the process
	end         context.CancelFunc
	asked       sync.WaitGroup

	// The world's lock guards what follows.
	joined bool
	canvas string
	closed bool
}

// Satellite implements session.Runtime.
func (rt *runtime) Satellite(_ context.Context, participant string, ask session.Asker) (roster.Satellite, error) {
	w := rt.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rt != rt || w.cli == nil {
		return nil, rpcconn.ErrClosed
	}
	s := &satellite{w: w, rt: rt, process: w.cli, participant: participant, ask: ask}
	s.ctx, s.end = context.WithCancel(context.Background())
	for _, o := range w.cli.satellites {
		if o.participant == participant {
			w.failures = append(w.failures, "a participant gets two connections")
		}
	}
	w.cli.satellites = append(w.cli.satellites, s)
	w.satellites = append(w.satellites, s)
	return s, nil
}

// errSatellite is a refusal of the CLI.
var errSatellite = errors.New("refused")

// Call implements roster.Satellite: the process works on it as on any request.
func (s *satellite) Call(ctx context.Context, method string, params []byte) (json.RawMessage, error) {
	done := make(chan error, 1)
	w := s.w
	w.mu.Lock()
	if w.cli != s.process || s.closed {
		w.mu.Unlock()
		return nil, rpcconn.ErrClosed
	}
	w.note("bridge, for %s: %s %s", s.participant, method, params)
	w.cli.requests = append(w.cli.requests, request{method: "satellite " + method, answer: params, satellite: s, done: done})
	w.mu.Unlock()
	select {
	case err := <-done:
		return json.RawMessage(`{}`), err
	case <-s.rt.conn.Done():
		return nil, rpcconn.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close implements roster.Satellite.
func (s *satellite) Close() {
	s.w.mu.Lock()
	if s.closed {
		s.w.failures = append(s.w.failures, "the connection of a participant is closed twice")
	}
	s.closed = true
	s.w.note("the connection of %s is closed", s.participant)
	s.process.satellites = slices.DeleteFunc(s.process.satellites, func(o *satellite) bool { return o == s })
	for _, r := range s.process.requests {
		if r.satellite == s {
			r.done <- rpcconn.ErrClosed
		}
	}
	s.process.requests = slices.DeleteFunc(s.process.requests, func(r request) bool { return r.satellite == s })
	s.w.mu.Unlock()
	s.end()
	s.asked.Wait()
}

// onSatellite works on a request of a satellite.
func (c *cli) onSatellite(r request) {
	var p struct {
		SessionID     string
		DisableResume bool
		Canvases      []struct{ ID string }
		Tools         []named
		Hooks         bool
		ClientName    string
	}
	_ = json.Unmarshal(r.answer, &p) // the bridge's object
	s := r.satellite
	switch {
	case p.SessionID != "s1":
		c.w.failures = append(c.w.failures, fmt.Sprintf("the connection of a participant is used for %q", p.SessionID))
		r.done <- errSatellite
		return
	case !c.loaded:
		r.done <- errSatellite
		return
	case r.method == "satellite session.destroy":
		s.joined = false
	case p.Tools != nil || p.Hooks || !p.DisableResume || len(p.Canvases) != 1 || p.ClientName != c.declared.ClientName && !c.w.clients.changing:
		c.w.failures = append(c.w.failures, fmt.Sprintf("the connection of a participant joins with %s", r.answer))
	default:
		s.joined, s.canvas = true, p.Canvases[0].ID
	}
	r.done <- nil
}

// openCanvas has the agent open the canvas of a participant. It reports whether there is one to open.
func (c *cli) openCanvas(n int) {
	joined := slices.DeleteFunc(slices.Clone(c.satellites), func(s *satellite) bool { return !s.joined })
	if len(joined) == 0 || !c.loaded {
		return
	}
	s := joined[n%len(joined)]
	id := fmt.Sprint("c-", c.w.uuid())
	c.canvases = append(c.canvases, id)
	c.w.note("CLI asks %s for its canvas: %s", s.participant, id)
	s.asked.Go(func() {
		params := fmt.Appendf(nil, `{"sessionId":"s1","canvasId":%q}`, s.canvas)
		result, err := s.ask(s.ctx, id, canvasMethod, params)
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.w.note("CLI: the canvas %s: %s %v", id, result, err)
		c.canvases = slices.DeleteFunc(c.canvases, func(o string) bool { return o == id })
		if err == nil {
			c.w.taken(id, string(result))
		}
	})
}

const canvasMethod = "canvas.open"

// loseSatellites ends the connections of participants to a process that has ended.
func (c *cli) loseSatellites() {
	for _, s := range c.satellites {
		s.end()
	}
}

// connected reports whether a participant has a connection to the process.
func (c *cli) connected(participant string) bool {
	return c != nil && slices.ContainsFunc(c.satellites, func(s *satellite) bool { return s.participant == participant })
}

// there reports whether a participant is there.
func (w *world) there(id string) bool {
	return slices.ContainsFunc(w.seats, func(s *seat) bool { return s.id == id && s.sits() })
}

// checkSatellites: the process that has the session has the canvases of those who are there. The caller holds the world's lock.
func (w *world) checkSatellites(c *cli) {
	must := 0
	for _, s := range w.satellites {
		if s.process != c && !s.closed && w.restarts == 0 {
			w.failures = append(w.failures, "a connection to a process that has ended is not closed")
		}
	}
	for _, s := range w.seats {
		if s.unsure {
			return
		}
		if !s.sits() || len(w.own(s)) == 0 {
			continue
		}
		must++
		if !slices.ContainsFunc(c.satellites, func(o *satellite) bool { return o.participant == s.id && o.joined && o.canvas == s.canvas() }) {
			w.failures = append(w.failures, fmt.Sprintf("the CLI does not know the canvas of the participant %c", s.tool))
		}
	}
	if len(c.satellites) != must {
		w.failures = append(w.failures, fmt.Sprintf("the CLI has %d connections of participants, not %d", len(c.satellites), must))
	}
}

// ask has the agent open a canvas.
func (w *world) draw(n int) {
	w.also(func(c *cli) { c.openCanvas(n) })
	synctest.Wait()
}
