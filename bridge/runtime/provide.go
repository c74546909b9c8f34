package runtime

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// SessionFS is a file system of ours for the sessions of a runtime, in the words of the
// CLI's sessionFs.setProvider.
type SessionFS struct {
	// Key tells apart those who provide it: there can be one for a process.
	Key string `json:"key"`
	// InitialDir is where sessions begin, StatePath where the CLI keeps its own files
	// about each.
	InitialDir string `json:"initial_dir"`
	StatePath  string `json:"state_path"`
	// Windows says that paths are written as on Windows.
	Windows bool `json:"windows,omitzero"`
	// SQLite and Binary say what it can do besides.
	SQLite bool `json:"sqlite,omitzero"`
	Binary bool `json:"binary,omitzero"`
}

// ModelInference is the making of requests to models, by us.
type ModelInference struct {
	// Key tells apart those who provide it: there can be one for a process.
	Key string `json:"key"`
}

// Provide registers on the connection what the profile says that we provide. It must be
// done before the first session: a runtime's Prepare.
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

// register makes a call that registers us as a provider.
func (r *Runtime) register(ctx context.Context, method string, params map[string]any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	result, err := r.conn.Call(ctx, method, raw)
	if err != nil {
		return fault.Wrap(err, fault.CLIStartFailed, "registering with %s", method)
	}
	out := struct{ Success bool }{Success: true} // null, where there is nothing to refuse
	if err := json.Unmarshal(result, &out); err != nil || !out.Success {
		return fault.New(fault.CLIStartFailed, "the CLI refused %s", method)
	}
	return nil
}

// StateDir is where the CLI keeps the sessions of the profile, "" if unknown.
func (p Profile) StateDir() string { return p.stateDir() }
