package session

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// Satellite is a connection of one participant's own to the runtime that has its session.
type Satellite = roster.Satellite

// NeedsConnection reports whether a participant declares what the CLI binds to a
// connection, so that it gets one of its own.
func (j *Joining) NeedsConnection() bool { return j != nil && len(j.Own) > 0 }

// Asker serves a request of the CLI that came on a satellite; id is unique to it.
type Asker func(ctx context.Context, id, method string, params json.RawMessage) (json.RawMessage, error)

// ownMembers are the members of a configuration that the CLI binds to the connection on
// which it got them.
var ownMembers = []string{"tools", "commands", "canvases", "extensionInfo", "canvasProvider"}

// satelliteParams is the configuration that a satellite joins its session with: all of
// the session's, since what is left out may be withdrawn from it, but for what would have
// the CLI ask the satellite too, and for the provider, whose tokens are asked of whoever
// named it last. The caller holds mu.
func (s *Session) satelliteParams(p *Participant) jsonobj.Object {
	o := s.effective()
	for _, name := range slices.Concat(ownMembers, s.switchNames, []string{"requestPermission", "provider", "providers"}) {
		o.Set(name, nil)
	}
	o.SetBool("disableResume", true)
	o.SetString("sessionId", s.id)
	return o.Merge(p.Own)
}

// syncSatellites opens a connection for each participant who needs one and has none. The
// gate is held.
func (s *Session) syncSatellites(ctx context.Context, rt Runtime) error {
	s.mu.Lock()
	var without []*Participant
	for p := range s.roster.All() {
		if len(p.Own) > 0 && p.Satellite == nil {
			without = append(without, p)
		}
	}
	s.mu.Unlock()
	for _, p := range without {
		if err := s.launch(ctx, rt, p); err != nil {
			return err
		}
	}
	return nil
}

// launch opens a participant's satellite and binds it to the session.
func (s *Session) launch(ctx context.Context, rt Runtime, p *Participant) error {
	sat, err := rt.Satellite(ctx, p.ID, func(ctx context.Context, id, method string, params json.RawMessage) (json.RawMessage, error) {
		return s.askBy(ctx, p, id, method, params)
	})
	if err != nil {
		return Classify(err, "")
	}
	if err := s.bind(ctx, sat, p); err != nil {
		sat.Close()
		return err
	}
	s.mu.Lock()
	wanted := !p.Left && s.runtime == rt
	if wanted {
		p.Satellite = sat
	}
	s.mu.Unlock()
	if !wanted { // it left, or the runtime ended, in the meantime
		sat.Close()
	}
	return nil
}

// bind has a satellite join the session.
func (s *Session) bind(ctx context.Context, sat Satellite, p *Participant) error {
	if err := s.passage.close(ctx); err != nil {
		return err
	}
	defer s.passage.open()
	s.mu.Lock()
	params := s.satelliteParams(p)
	s.mu.Unlock()
	_, err := sat.Call(ctx, "session.resume", params.JSON())
	return Classify(err, "session.resume")
}

// askBy serves what the CLI asks on a participant's satellite: what is bound to the
// connection is asked of the participant, and the rest as if it came on the first.
func (s *Session) askBy(ctx context.Context, p *Participant, id, method string, params json.RawMessage) (json.RawMessage, error) {
	kind := callback.ForRequest(method)
	if !kind.Bound {
		return s.callbacks.AskMethod(ctx, id, method, params)
	}
	return s.callbacks.Ask(ctx, &callback.Pending{ID: id, Kind: kind, Params: params, For: p.ID})
}

// dropSatellites closes all satellites, in the background. The caller holds mu.
func (s *Session) dropSatellites() {
	for _, sat := range s.roster.TakeSatellites() {
		s.host.Go(func(context.Context) { sat.Close() })
	}
}

// orbited reports whether a participant has a satellite: canvases may be open then. The
// caller holds mu.
func (s *Session) orbited() bool {
	return s.roster.Any(func(p *Participant) bool { return p.Satellite != nil })
}

// leaveSatellites has all satellites leave the session: it would stay loaded in the CLI
// for them.
func (s *Session) leaveSatellites(ctx context.Context) {
	s.mu.Lock()
	all := s.roster.TakeSatellites()
	s.mu.Unlock()
	var params jsonobj.Object
	params.SetString("sessionId", s.id)
	for _, sat := range all {
		if _, err := sat.Call(ctx, "session.destroy", params.JSON()); err != nil {
			s.host.Logger().Debug("satellite did not leave", "session_id", s.id, "error", err)
		}
		sat.Close()
	}
}

// Handles reports whether anybody in the session answers a method.
func (s *Session) Handles(method string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usable() == nil && s.wantsMethod(method)
}
