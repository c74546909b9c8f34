package session

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// NeedsConnection reports whether a participant declares something that the CLI binds to a connection, so that
// it needs a satellite.
func (j *Joining) NeedsConnection() bool { return j != nil && len(j.Own) > 0 }

// ownMembers are the members of a configuration that the CLI binds to the connection on which it
// got them.
var ownMembers = []string{"tools", "commands", "canvases", "extensionInfo", "canvasProvider"}

// satelliteParams is the configuration with which the satellite of a participant joins its session: what is the
// participant's own, and all of the session's, since what is left out may be withdrawn from it. It lacks members that
// would have the CLI ask the satellite too, and the provider, whose tokens the CLI asks of the connection that named it
// last. The caller holds the lock.
func (m *Participants) satelliteParams(own jsonobj.Object) jsonobj.Object {
	o := m.effective()
	for _, name := range slices.Concat(ownMembers, m.switchNames, []string{"requestPermission", "provider", "providers"}) {
		o.Set(name, nil)
	}
	o.SetBool("disableResume", true)
	o.SetString("sessionId", m.s.id)
	return o.Merge(own)
}

// openSatellites opens a connection for each participant that needs one and has none.
func (m *Participants) openSatellites(ctx context.Context, rt Runtime) error {
	m.s.mu.Lock()
	var without []*roster.Participant
	for p := range m.s.roster.All() {
		if len(p.Own) > 0 && p.Satellite == nil {
			without = append(without, p)
		}
	}
	m.s.mu.Unlock()
	for _, p := range without {
		if err := m.openSatellite(ctx, rt, p); err != nil {
			return err
		}
	}
	return nil
}

// openSatellite opens a participant's satellite and has it join the session.
func (m *Participants) openSatellite(ctx context.Context, rt Runtime, p *roster.Participant) error {
	ask := func(ctx context.Context, id, method string, params json.RawMessage) (json.RawMessage, error) {
		return m.askOnSatellite(ctx, p, id, method, params)
	}
	m.s.mu.Lock()
	own := p.Own
	m.s.mu.Unlock()
	if len(own) == 0 { // it has joined again, without
		return nil
	}
	sat, err := rt.Satellite(ctx, p.ID, ask)
	if err != nil {
		return Classify(err, "")
	}
	if err := m.joinSatellite(ctx, sat, own); err != nil {
		sat.Close()
		return err
	}
	m.s.mu.Lock()
	wanted := !p.Left && m.s.loader.runtime == rt && string(p.Own.JSON()) == string(own.JSON())
	if wanted {
		p.Satellite = sat
	}
	m.s.mu.Unlock()
	if !wanted { // the participant left or declares something else, or the runtime ended, in the meantime
		sat.Close()
	}
	return nil
}

// joinSatellite has a satellite join the session.
func (m *Participants) joinSatellite(ctx context.Context, sat roster.Satellite, own jsonobj.Object) error {
	if err := m.resumes.beginResume(ctx); err != nil {
		return Classify(err, "")
	}
	defer m.resumes.endResume()
	m.s.mu.Lock()
	params := m.satelliteParams(own)
	m.s.mu.Unlock()
	_, err := sat.Call(ctx, "session.resume", params.JSON())
	return Classify(err, "session.resume")
}

// askOnSatellite serves a request that the CLI makes on a participant's satellite: one that is bound
// to the connection goes to the participant, any other the ordinary way.
func (m *Participants) askOnSatellite(ctx context.Context, p *roster.Participant, id, method string, params json.RawMessage) (
	json.RawMessage, error) {
	kind := callback.ForRequest(method)
	if !kind.Bound {
		return m.s.callbacks.AskMethod(ctx, id, method, params)
	}
	return m.s.callbacks.ask(ctx, &callback.Pending{ID: id, Kind: kind, Params: params, For: p.ID})
}

// closeSatellites closes all satellites, in the background. The caller holds the lock.
func (m *Participants) closeSatellites() {
	for _, sat := range m.s.roster.TakeSatellites() {
		m.s.host.Go(func(context.Context) { sat.Close() })
	}
}

// leaveSatellites has all satellites leave the session: the CLI would keep it loaded for them.
func (m *Participants) leaveSatellites(ctx context.Context) {
	m.s.mu.Lock()
	all := m.s.roster.TakeSatellites()
	m.s.mu.Unlock()
	var params jsonobj.Object
	params.SetString("sessionId", m.s.id)
	for _, sat := range all {
		if _, err := sat.Call(ctx, "session.destroy", params.JSON()); err != nil {
			m.s.host.Logger().Debug("closing a satellite failed", "session_id", m.s.id, "error", err)
		}
		sat.Close()
	}
}
