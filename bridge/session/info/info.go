// Package info has what a session shows of itself: its title, times, model, context and
// capabilities. An Info is a value: the package has no lock, clock or goroutine, and the session's
// lock guards the Info of a session.
package info

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Info is what a session shows of itself. Its JSON is part of the session's saved form.
type Info struct {
	Start         time.Time    `json:"start"`
	Modified      time.Time    `json:"modified"`
	Summary       string       `json:"summary,omitempty"`
	Name          string       `json:"name,omitempty"`
	WorkspacePath string       `json:"workspacePath,omitempty"`
	IsRemote      bool         `json:"isRemote,omitempty"`
	Context       Context      `json:"context"`
	Model         string       `json:"model,omitempty"`
	Capabilities  Capabilities `json:"capabilities"`
}

// Context is where a session works, in the CLI's members.
type Context struct {
	Cwd        string `json:"cwd"`
	GitRoot    string `json:"gitRoot"`
	Repository string `json:"repository"`
	Branch     string `json:"branch"`
}

// Capabilities is what a session can do, in the CLI's members.
type Capabilities struct {
	UI struct {
		Elicitation, McpApps, Canvases bool
	} `json:"ui"`
	Extensions bool `json:"extensions"`
}

// Change says what has to follow a change of an Info.
type Change uint8

// The changes, in the order of what follows them.
const (
	// None: nothing has to follow; the next load gives the same.
	None Change = iota
	// Save: the session has to be saved.
	Save
	// Announce: the session has to be saved, and watchers of sessions have to see the change.
	Announce
)

// Apply follows an event of the session's own agent that arrived at a time.
func (i *Info) Apply(rec *journal.Record, at time.Time) Change {
	switch rec.Type {
	case "session.start", "session.resume":
		i.opened(rec)
	case "session.title_changed":
		var d struct{ Title string }
		if event.Data(rec, &d) && d.Title != i.Summary {
			i.Summary = d.Title
			return Announce
		}
	case "session.model_change":
		var d struct{ NewModel string }
		if event.Data(rec, &d) && d.NewModel != "" {
			i.Model = d.NewModel
			return Save
		}
	case "session.context_changed":
		var d Context
		if event.Data(rec, &d) && d.Cwd != "" {
			i.Context = d
		}
	case "capabilities.changed":
		event.Data(rec, &i.Capabilities)
	case "user.message", "session.idle":
		i.Modified = at
		return Save
	}
	return None
}

// opened follows the event that begins or resumes the session.
func (i *Info) opened(rec *journal.Record) {
	var d struct {
		StartTime     time.Time `json:"startTime"`
		SelectedModel string    `json:"selectedModel"`
		Context       *Context  `json:"context"`
	}
	if !event.Data(rec, &d) {
		return
	}
	if !d.StartTime.IsZero() {
		i.Start = d.StartTime
	}
	if d.SelectedModel != "" {
		i.Model = d.SelectedModel
	}
	if d.Context != nil {
		i.Context = *d.Context
	}
}

// ApplyResult takes over the CLI's answer to create and resume. config is the session's.
func (i *Info) ApplyResult(result json.RawMessage, config jsonobj.Object) {
	var r struct {
		WorkspacePath string        `json:"workspacePath"`
		Capabilities  *Capabilities `json:"capabilities"`
		StartTime     time.Time     `json:"startTime"`
		IsRemote      bool          `json:"isRemote"`
		ModelState    struct {
			ModelID string `json:"modelId"`
		} `json:"modelState"`
	}
	if json.Unmarshal(result, &r) != nil {
		return
	}
	i.IsRemote = r.IsRemote
	if r.WorkspacePath != "" {
		i.WorkspacePath = r.WorkspacePath
	}
	if r.Capabilities != nil {
		i.Capabilities = *r.Capabilities
	}
	if !r.StartTime.IsZero() {
		i.Start = r.StartTime
	}
	if i.Modified.Before(i.Start) { // the session was made here before the CLI made it
		i.Modified = i.Start
	}
	if r.ModelState.ModelID != "" {
		i.Model = r.ModelState.ModelID
	} else if model := config.String("model"); i.Model == "" {
		i.Model = model
	}
	if i.Context.Cwd == "" {
		i.Context.Cwd = config.String("workingDirectory")
	}
}

// Proto returns the API's form, with the members that an Info has.
func (i *Info) Proto() *bridgev1.Session {
	return &bridgev1.Session{
		CreateTime: timestamppb.New(i.Start), UpdateTime: timestamppb.New(i.Modified),
		Summary: i.Summary, Name: i.Name, IsRemote: i.IsRemote,
		Context: &bridgev1.SessionContext{
			WorkingDirectory: i.Context.Cwd, GitRoot: i.Context.GitRoot,
			Repository: i.Context.Repository, Branch: i.Context.Branch,
		},
		WorkspacePath: i.WorkspacePath, ModelId: i.Model,
		Capabilities: &bridgev1.SessionCapabilities{
			Elicitation: i.Capabilities.UI.Elicitation, McpApps: i.Capabilities.UI.McpApps,
			Canvases: i.Capabilities.UI.Canvases, Extensions: i.Capabilities.Extensions,
		},
	}
}
