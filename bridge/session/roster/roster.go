// Package roster has the participants of a session: the tools, commands and canvases of each, the callbacks
// that each handles, their order, and the participants that may resume.
//
// A Roster owns the list and the participants' fields, except for ID and Token, which do not change. It has no
// lock, clock or goroutine. The session guards it by its mutex, starts and stops the timers of grace times, and
// closes the satellites that the Roster returns.
package roster

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

// Satellite is a connection of one participant's own to the runtime that has its session.
type Satellite interface {
	// Call makes a JSON-RPC call on it.
	Call(ctx context.Context, method string, params []byte) (json.RawMessage, error)
	// Close ends it and waits for what it does.
	Close()
}

// Participant is a caller that is attached to a session.
type Participant struct {
	ID    string
	Token string

	// Brings is what it brought last.
	Brings
	// Satellite is the connection to which the CLI binds Own.
	Satellite Satellite
	// Connected says that its stream is there; Left, that it is no participant any more.
	Connected, Left bool
	// Timer runs during its grace time, which began at LostAt.
	Timer  *time.Timer
	LostAt time.Time
	// Streams counts its streams: the first one, and each that resumed the participant.
	Streams int

	hash string // of the token, of a participant of an earlier process
}

// Brings is what a participant brings.
type Brings struct {
	Name     string
	Tools    []config.Tool
	Commands []config.Command
	Handling config.Handling
	// Own is what it declares that the CLI binds to a connection, as members of the
	// configuration.
	Own jsonobj.Object
	// Grace is the time for which the participant may resume after it has lost its connection.
	Grace time.Duration
	// Identity is the caller's, as far as it is known.
	Identity string
	// Replace ends the stream that has the place.
	Replace context.CancelCauseFunc
	// Asked, if set, is called for each request that is offered to the participant.
	Asked func()
}

// ErrReplaced is the cause with which a stream ends whose place another took.
var ErrReplaced = fault.New(fault.ParticipantReplaced, "another stream resumed this participant")

// StopTimer ends the grace time.
func (p *Participant) StopTimer() {
	if p.Timer != nil {
		p.Timer.Stop()
	}
}

// TakeSatellite takes a participant's satellite from it; nil if it has none.
func (p *Participant) TakeSatellite() Satellite {
	sat := p.Satellite
	p.Satellite = nil
	return sat
}

// TokenHash returns the stored form of a participant's token.
func (p *Participant) TokenHash() string {
	if p.Token == "" {
		return p.hash
	}
	return hashToken(p.Token)
}

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Roster has a session's participants in the order in which they came. Its zero value is empty.
type Roster struct {
	list []*Participant
}

// Len returns how many participants there are.
func (r *Roster) Len() int { return len(r.list) }

// All returns the participants in the order in which they came.
func (r *Roster) All() iter.Seq[*Participant] { return slices.Values(r.list) }

// Has reports whether a participant is there.
func (r *Roster) Has(p *Participant) bool { return slices.Contains(r.list, p) }

// Name returns the name of a participant; empty if it has none or is not there.
func (r *Roster) Name(id string) string {
	for _, p := range r.list {
		if p.ID == id {
			return p.Name
		}
	}
	return ""
}

// Any reports whether there is a participant of which f is true.
func (r *Roster) Any(f func(*Participant) bool) bool { return slices.ContainsFunc(r.list, f) }

// Place adds a participant or, with a token, resumes one. With reclaim, only the same caller may resume it.
// displaced is a satellite for the caller to close: the CLI cannot withdraw canvases on the same connection.
// After an error the roster is unchanged.
func (r *Roster) Place(b Brings, token string, reclaim bool, own *config.State) (p *Participant, displaced Satellite, err error) {
	if token != "" {
		if p = r.ByToken(token); p == nil || reclaim && p.Identity != b.Identity {
			return nil, nil, fault.New(fault.ParticipantNotFound, "no participant has this token; its grace time may have expired").WithField("participant_token")
		}
	}
	if err := r.CheckTools(b.Tools, own.Tools, p, "tools"); err != nil {
		return nil, nil, err
	}
	if err := r.CheckCommands(b.Commands, config.CommandsAsGiven(own.Object.Get("commands")), p, "commands"); err != nil {
		return nil, nil, err
	}
	if p == nil {
		p = &Participant{ID: "p-" + rand.Text()[:12], Token: rand.Text()}
		r.list = append(r.list, p)
	} else {
		p.Token = token
		if p.Replace != nil && p.Connected {
			p.Replace(ErrReplaced)
		}
	}
	p.StopTimer()
	if p.Satellite != nil && string(p.Own.JSON()) != string(b.Own.JSON()) {
		displaced = p.TakeSatellite()
	}
	p.Brings, p.Connected = b, true
	p.Streams++
	return p, displaced, nil
}

// BroughtBy returns what the participant with a token brought last.
func (r *Roster) BroughtBy(token string) Brings {
	if p := r.ByToken(token); p != nil {
		return p.Brings
	}
	return Brings{}
}

// ByToken returns the participant with a token, or nil.
func (r *Roster) ByToken(token string) *Participant {
	hash := []byte(hashToken(token))
	for _, p := range r.list {
		if subtle.ConstantTimeCompare([]byte(p.TokenHash()), hash) == 1 {
			return p
		}
	}
	return nil
}

// Remove takes a participant out.
func (r *Roster) Remove(p *Participant) {
	r.list = slices.DeleteFunc(slices.Clone(r.list), func(o *Participant) bool { return o == p })
	p.Left, p.Connected = true, false
	p.StopTimer()
}

// Clear takes all participants out.
func (r *Roster) Clear() {
	for _, p := range r.list {
		r.Remove(p)
	}
}

// HasSatellite reports whether a participant has a satellite: canvases may be open then.
func (r *Roster) HasSatellite() bool {
	return r.Any(func(p *Participant) bool { return p.Satellite != nil })
}

// TakeSatellites takes their satellites from all participants.
func (r *Roster) TakeSatellites() (all []Satellite) {
	for _, p := range r.list {
		if sat := p.TakeSatellite(); sat != nil {
			all = append(all, sat)
		}
	}
	return all
}

// Saved is the stored form of a participant that may resume. It has the hash of the token.
type Saved struct {
	ID       string            `json:"id"`
	Token    string            `json:"token"`
	Name     string            `json:"name,omitempty"`
	Tools    []json.RawMessage `json:"tools,omitempty"`
	Commands []config.Command  `json:"commands,omitempty"`
	Handling config.Handling   `json:"handling"`
	Own      json.RawMessage   `json:"own,omitempty"`
	Grace    time.Duration     `json:"grace,omitempty"`
}

// Save returns the stored form.
func (r *Roster) Save() (out []Saved) {
	for _, p := range r.list {
		var lost []string
		out = append(out, Saved{
			ID: p.ID, Token: p.TokenHash(), Name: p.Name, Tools: config.ToolTexts(p.Tools), Commands: p.Commands,
			Handling: p.Handling, Own: config.WithoutSecrets(p.Own.JSON(), "", &lost), Grace: p.Grace,
		})
	}
	return out
}

// Restore adds the participants that Save kept. They are not connected.
func (r *Roster) Restore(saved []Saved) {
	for _, one := range saved {
		own, err := jsonobj.Parse(one.Own)
		if err != nil {
			own = nil
		}
		r.list = append(r.list, &Participant{ID: one.ID, hash: one.Token, Brings: Brings{
			Name: one.Name, Tools: config.ToolsOf(one.Tools), Commands: one.Commands, Handling: one.Handling, Own: own, Grace: one.Grace,
		}})
	}
}
