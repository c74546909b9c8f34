package transfer

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/info"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/usage"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// The parts of an archive.
const (
	stateFile     = "session.json"
	journalFile   = "journal.jsonl"
	historyFolder = "history"
)

// state is the content of session.json.
type state struct {
	// Create is a CreateSessionRequest in protobuf's JSON, with the configuration, the handlers and the labels.
	Create json.RawMessage `json:"create"`
	// Missing are the paths in the configuration of secrets that were left out.
	Missing []string  `json:"missingSecrets,omitempty"`
	Start   time.Time `json:"start"`
	Summary string    `json:"summary,omitempty"`
	Name    string    `json:"name,omitempty"`
	Model   string    `json:"model,omitempty"`
	// Usage is for readers of the archive. An import ignores it: usage counts what a tenant used on its server.
	Usage usage.Usage `json:"usage,omitempty"`
}

// newState describes a session for a caller of its tenant.
func newState(codec *wire.Codec, id string, e session.Exported, c caller.Caller) (state, error) {
	object, err := jsonobj.Parse(e.Config)
	if err != nil {
		return state{}, err
	}
	for _, reserved := range wire.ReservedMembers {
		object.Set(reserved, nil)
	}
	if object.String(config.TokenProvider) == id { // an import sets it again
		object.Set(config.TokenProvider, nil)
	}
	if !c.May(caller.Host) { // the tenant's callers cannot set it: imports of earlier versions did
		object.Set(workingDirectory, nil)
	}
	if len(e.Tools) > 0 {
		tools, err := json.Marshal(e.Tools)
		if err != nil {
			return state{}, err
		}
		object.Set("tools", tools)
	}
	create := &bridgev1.CreateSessionRequest{
		Config: &cliv1.SessionConfig{}, Lifetime: bridgev1.Lifetime(e.Lifetime), ProviderRef: e.ProviderRef,
		Labels: e.Labels,
	}
	if e.Continues {
		create.OnInterruption = bridgev1.OnInterruption_ON_INTERRUPTION_CONTINUE
	}
	if err := codec.FromJSON(object.JSON(), create.Config); err != nil {
		return state{}, err
	}
	if len(e.Handling.Methods) > 0 {
		create.Handlers = &bridgev1.Handlers{Methods: e.Handling.Methods, HookTypes: e.Handling.HookTypes}
	}
	if e.Timeout > 0 {
		create.CallbackTimeout = durationpb.New(e.Timeout)
	}
	out := state{
		Missing: e.Missing, Start: e.Start, Summary: e.Summary, Name: e.Name, Model: e.Model, Usage: e.Usage,
	}
	out.Create, err = protojson.Marshal(create)
	return out, err
}

// maxMissing bounds the paths of missing secrets, maxText the bytes of a text that describes a session.
const (
	maxMissing = 1024
	maxText    = 1024
)

// parseState reads and checks session.json, and returns the request that it holds. The request's fields are still the
// author's.
func parseState(text []byte) (st state, create *bridgev1.CreateSessionRequest, err error) {
	if err := json.Unmarshal(text, &st); err != nil {
		return st, nil, fmt.Errorf("%s: %w", stateFile, err)
	}
	texts := append([]string{st.Summary, st.Name, st.Model}, st.Missing...)
	tooLong := func(s string) bool { return len(s) > maxText || !utf8.ValidString(s) }
	if len(st.Missing) > maxMissing || slices.ContainsFunc(texts, tooLong) {
		return st, nil, fmt.Errorf("%s: a text or a list is too long", stateFile)
	}
	request := &bridgev1.CreateSessionRequest{}
	if err := protojson.Unmarshal(st.Create, request); err != nil {
		return st, nil, fmt.Errorf("%s: create: %w", stateFile, err)
	}
	create = &bridgev1.CreateSessionRequest{ // the other fields are not the session's
		Config: request.GetConfig(), Lifetime: request.GetLifetime(), ProviderRef: request.GetProviderRef(),
		Labels: request.GetLabels(), Handlers: request.GetHandlers(), CallbackTimeout: request.GetCallbackTimeout(),
		OnInterruption: request.GetOnInterruption(),
	}
	return st, create, nil
}

// info describes the imported session.
func (st *state) info(workspace, dir string) info.Info {
	return info.Info{
		Start: st.Start, Modified: time.Now(), Summary: st.Summary, Name: st.Name, Model: st.Model,
		WorkspacePath: workspace, Context: info.Context{Cwd: dir},
	}
}
