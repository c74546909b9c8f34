package session

import (
	"context"
	"encoding/json"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

// toolsTimeout is how long the CLI may take for a change of the tools, before it lingers: other changes of the session wait
// behind it.
const toolsTimeout = time.Minute

// received is the configuration that the current runtime received last, with its replies. While a call changes tools, switches
// or token, and if it fails, they are not known: the runtime may have them, or may work on the call later.
type received struct {
	toolsKnown bool // the CLI has the session's tools
	switches   string
	tools      json.RawMessage
	token      json.RawMessage
	interests  map[string]bool // the registered event types
	result     json.RawMessage // of the create or resume, and the journal's position then
	at         journal.Position
}

// unknownSwitches stands for the switches of a runtime that may have any.
const unknownSwitches = "?"

// Plan is the configuration to send to a runtime.
type plan struct {
	// Params is the whole configuration.
	Params   jsonobj.Object
	tools    json.RawMessage
	switches string
}

// plan returns the configuration that a runtime needs now. The caller holds the lock.
func (m *Participants) plan() plan {
	return plan{m.effective(), m.toolsJSON(), m.switches()}
}

// toolsJSON is the union of the session's tools and the participants'. The caller holds the lock.
func (m *Participants) toolsJSON() json.RawMessage {
	return config.ToolsJSON(m.s.roster.Tools(m.s.settings.State.Tools))
}

// Received records that a runtime received a plan, its reply, and the journal's position of the reply.
func (m *Participants) Received(p plan, result json.RawMessage, at journal.Position) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	t := &m.received
	t.tools, t.switches, t.toolsKnown = p.tools, p.switches, true
	t.token = m.s.settings.State.Object.Get(config.GitHubToken)
	t.result, t.at = result, at
	m.s.ingester.Info.ApplyResult(result, m.s.settings.State.Object)
	m.s.markDirty()
}

// Opened returns what the CLI answered to the last create or resume, and the journal's last position
// then.
func (m *Participants) Opened() (json.RawMessage, journal.Position) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.received.result, m.received.at
}

// loaded records that a runtime has loaded the session and that no event types are registered there. The caller
// holds the lock.
func (m *Participants) loaded() { m.received.interests = map[string]bool{} }

// unloaded notes that no runtime has the session any more. The caller holds the lock.
func (m *Participants) unloaded() { m.received.toolsKnown = false }

// sync brings the CLI's tools and switches in step with the participants'. Tools alone are set as
// such, which does not disturb a running turn; a changed switch takes a warm resume with everything.
func (m *Participants) sync(ctx context.Context) error {
	return m.s.loader.exclusive(ctx, func() error {
		rt, err := m.s.loader.load(ctx)
		if err != nil {
			return err
		}
		if err := m.attend(ctx, rt); err != nil {
			return err
		}
		m.s.mu.Lock()
		tools, switched := m.toolsJSON(), m.switches() != m.received.switches
		changed := string(tools) != string(m.received.tools)
		m.s.mu.Unlock()
		switch {
		case switched:
			return m.warmResume(ctx, rt, nil)
		case changed:
			return m.setTools(ctx, rt, tools)
		}
		return nil
	})
}

// Refresh follows a change of what participants and callers of WatchPending handle: it gives callbacks that have lost their
// handler the default answer, and tells the CLI if it has the session. If the CLI does not answer in time, the host is asked
// for another Refresh: nobody else would tell the CLI of who has gone.
func (m *Participants) Refresh(ctx context.Context) error {
	m.s.callbacks.orphans(ctx)
	m.s.mu.Lock()
	outdated := m.outdated() || len(m.interests()) > 0
	m.s.mu.Unlock()
	if !outdated || m.s.loader.State() != Loaded {
		return nil
	}
	err := m.sync(ctx)
	if ctx.Err() != nil || fault.ReasonOf(err) == fault.Timeout {
		m.s.update(m.followUp)
	}
	return err
}

// setTools tells the CLI the tools. The caller holds the lifecycle lock.
func (m *Participants) setTools(ctx context.Context, rt Runtime, tools json.RawMessage) error {
	limited, cancel := context.WithTimeout(ctx, toolsTimeout)
	defer cancel()
	lingering, end := m.s.loader.lingering(limited)
	defer end()
	m.s.mu.Lock()
	m.received.tools = nil
	m.s.mu.Unlock()
	if _, _, err := m.s.call(lingering, rt, "session.tools.set", jsonobj.Object{{Key: "tools", Value: tools}}); err != nil {
		if fault.ReasonOf(err) == fault.Cancelled && limited.Err() != nil { // not by the caller, unless limited says so
			return Classify(limited.Err(), "session.tools.set")
		}
		return err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.received.tools = tools
	m.followUp()
	return nil
}

// followUp has the runtime told again if a handler came or left while it was told: who changed that may have given up waiting.
// The caller holds the lock.
func (m *Participants) followUp() {
	if m.outdated() {
		m.s.host.Refresh()
	}
}

// attend puts in place what is apart from the session's configuration: interests in events, and the
// connections of participants. The caller holds the lifecycle lock.
func (m *Participants) attend(ctx context.Context, rt Runtime) error {
	if err := m.registerInterests(ctx, rt); err != nil {
		return err
	}
	return m.openSatellites(ctx, rt)
}

// registerInterests tells the CLI of the events that it only sends on request.
func (m *Participants) registerInterests(ctx context.Context, rt Runtime) error {
	m.s.mu.Lock()
	types := m.interests()
	m.s.mu.Unlock()
	for _, eventType := range types {
		var params jsonobj.Object
		params.SetString("eventType", eventType)
		if _, _, err := m.s.call(ctx, rt, "session.eventLog.registerInterest", params); err != nil {
			return err
		}
		m.s.mu.Lock()
		m.received.interests[eventType] = true
		m.s.mu.Unlock()
	}
	return nil
}

// warmResume gives the CLI the whole effective configuration, with changes, for a session that it
// has loaded. It leaves no event. The caller holds the lifecycle lock.
func (m *Participants) warmResume(ctx context.Context, rt Runtime, change func(*jsonobj.Object)) error {
	if err := m.resumes.beginResume(ctx); err != nil {
		return Classify(err, "")
	}
	defer m.resumes.endResume()
	m.s.mu.Lock()
	plan := m.plan()
	// A resume without the token does not remove it. With the token, CLI 1.0.81 asks GitHub for the token's
	// user again, and a turn that begins meanwhile uses the wrong endpoint.
	if token := plan.Params.Get(config.GitHubToken); token != nil && string(token) == string(m.received.token) {
		plan.Params.Set(config.GitHubToken, nil)
	}
	m.received.tools, m.received.switches, m.received.token = nil, unknownSwitches, nil
	m.s.mu.Unlock()
	plan.Params.SetBool("disableResume", true)
	if change != nil {
		change(&plan.Params)
	}
	ctx, cancel := m.s.loader.lingering(ctx)
	defer cancel()
	result, at, err := m.s.call(ctx, rt, "session.resume", plan.Params)
	if err != nil {
		return err
	}
	m.Received(plan, result, at)
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.followUp()
	return nil
}
