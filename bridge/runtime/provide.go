package runtime

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// SessionFS is a file system that the bridge provides to a runtime's sessions. The fields are those of the CLI's
// sessionFs.setProvider.
type SessionFS struct {
	// Key distinguishes providers: a process can have one.
	Key string `json:"key"`
	// InitialDir is the initial directory of sessions, StatePath the folder of the CLI's own files for each.
	InitialDir string `json:"initial_dir"`
	StatePath  string `json:"state_path"`
	// Windows reports that paths have the form of Windows.
	Windows bool `json:"windows,omitzero"`
	// SQLite and Binary are optional capabilities.
	SQLite bool `json:"sqlite,omitzero"`
	Binary bool `json:"binary,omitzero"`
}

// ModelInference configures model requests by the bridge.
type ModelInference struct {
	// Key distinguishes providers: a process can have one.
	Key string `json:"key"`
}

// Provide registers the profile's providers on the connection. It must run before the first session is created, as a
// runtime's Prepare.
func Provide(ctx context.Context, r *Runtime) error {
	p := r.Profile()
	if fs := p.SessionFS; fs != nil {
		conventions := "posix"
		if fs.Windows {
			conventions = "windows"
		}
		params := map[string]any{
			"initialCwd": fs.InitialDir, "sessionStatePath": fs.StatePath, "conventions": conventions,
			"capabilities": map[string]bool{"sqlite": fs.SQLite, "binary": fs.Binary},
		}
		if err := r.register(ctx, "sessionFs.setProvider", params); err != nil {
			return err
		}
	}
	if p.ExtensionLaunch {
		if err := r.register(ctx, "registerExtensionLaunchProvider", map[string]any{}); err != nil {
			return err
		}
	}
	if p.ModelInference != nil {
		return r.register(ctx, "llmInference.setProvider", map[string]any{})
	}
	return nil
}

// register makes a call that registers a provider.
func (r *Runtime) register(ctx context.Context, method string, params map[string]any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	result, err := r.conn.Call(ctx, method, raw)
	if err != nil {
		return fault.Wrap(err, fault.CLIStartFailed, "registering with %s", method)
	}
	out := struct{ Success bool }{Success: true} // the reply can be null, which means success
	if err := json.Unmarshal(result, &out); err != nil || !out.Success {
		return fault.New(fault.CLIStartFailed, "the CLI refused %s", method)
	}
	return nil
}
