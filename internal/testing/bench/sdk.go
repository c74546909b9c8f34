package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/loadcli"
)

// sdk is an official SDK that is measured beside the bridge. It comes as a package, is
// installed once under the user's cache, and is driven by a script in the folder sdk.
type sdk struct {
	name string
	// files are what it is installed from, and driver the script, "" if command needs none; all are in the folder.
	files  []string
	driver string
	// install prepares the given folder; command runs the driver there.
	install [][]string
	command []string
}

var sdks = []sdk{
	{
		name: "node", files: []string{"package.json"}, driver: "driver.mjs",
		install: [][]string{{"npm", "install", "--silent", "--no-audit", "--no-fund"}},
		command: []string{"node"},
	},
	{
		name: "python", files: []string{"requirements.txt"}, driver: "driver.py",
		install: [][]string{
			{"python3", "-m", "venv", "venv"},
			{"venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"},
		},
		command: []string{"venv/bin/python"},
	},
	{ // in a separate module: its files have other names here, because this module must not contain them
		name: "go", files: []string{"go.mod.txt", "driver.go.txt"},
		install: [][]string{
			{"cp", "go.mod.txt", "go.mod"}, {"cp", "driver.go.txt", "driver.go"}, {"go", "mod", "tidy"},
			{"go", "build", "-o", "driver", "."},
		},
		command: []string{"./driver"},
	},
}

// prepare installs the SDK if it is not, and returns its folder.
func (s sdk) prepare(ctx context.Context, module string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "copilot-grpc-bench", s.name)
	stamp := filepath.Join(dir, "installed")
	var wanted []byte
	for _, name := range append(s.files, s.driver) {
		if name == "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(module, "internal/testing/bench/sdk", name))
		if err != nil {
			return "", err
		}
		if err := errors.Join(os.MkdirAll(dir, 0o700),
			os.WriteFile(filepath.Join(dir, name), text, 0o600)); err != nil {
			return "", err
		}
		if name != s.driver {
			wanted = append(wanted, text...)
		}
	}
	if have, err := os.ReadFile(stamp); err == nil && bytes.Equal(have, wanted) {
		return dir, nil
	}
	for _, args := range s.install {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w: %s", args, err, out)
		}
	}
	return dir, os.WriteFile(stamp, wanted, 0o600)
}

// driver is a running SDK with a session in a separate CLI.
type driver struct {
	*lines

	dir string
}

// drive starts the SDK's driver on a CLI with a session; config is what the session is
// made with beside the tool, env what it finds in its environment beside ours.
func (s sdk) drive(ctx context.Context, module, cli string, config map[string]any, env ...string) (*driver, error) {
	dir, err := s.prepare(ctx, module)
	if err != nil {
		return nil, err
	}
	if config == nil {
		config = map[string]any{}
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp("", "copilot-grpc-bench-")
	if err != nil {
		return nil, err
	}
	args := slices.Clone(s.command[1:])
	if s.driver != "" {
		args = append(args, s.driver)
	}
	args = append(args, cli, loadcli.Tool, toolResult, string(text))
	cmd := exec.CommandContext(ctx, filepath.FromSlash(s.command[0]), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+home, "COPILOT_HOME="+filepath.Join(home, "home"))
	cmd.Env = append(cmd.Env, env...)
	l, err := startLines(cmd)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(home))
	}
	d := &driver{l, home}
	if _, err := d.read(); err != nil { // it says that it is ready
		return nil, errors.Join(fmt.Errorf("the SDK's driver: %w", err), d.close())
	}
	return d, nil
}

// answer is what a driver says.
type answer struct {
	Took   []int64 `json:"took"` // ns
	Info   string  `json:"info"`
	Events int     `json:"events"`
	CPU    float64 `json:"cpu"` // µs
}

func (d *driver) order(format string, args ...any) (a answer, err error) {
	line, err := d.ask(fmt.Sprintf(format, args...))
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(line, &a)
}

// sends implements traveller.
func (d *driver) sends(_ context.Context, n int) ([]float64, error) {
	a, err := d.order("send %d", n)
	return inMicros(a.Took), err
}

// tools implements traveller.
func (d *driver) tools(_ context.Context, n int) ([]float64, error) {
	a, err := d.order("turn %s %d", loadcli.PromptTools, n)
	if err != nil {
		return nil, err
	}
	return toolTimes(a.Info)
}

// turn is a turner's.
func (d *driver) turn(_ context.Context, prompt string) (float64, error) {
	a, err := d.order("turn %s", prompt)
	if err == nil && len(a.Took) != 1 {
		err = fmt.Errorf("%d times of a turn", len(a.Took))
	}
	if err != nil {
		return 0, err
	}
	return float64(a.Took[0]) / 1e3, nil
}

// blast has the CLI send n events: the CPU µs of the SDK's process for each.
func (d *driver) blast(prompt, payload string, n int) (float64, error) {
	a, err := d.order("turn %s %s %d", prompt, payload, n)
	if err == nil && a.Events < n {
		err = fmt.Errorf("%d events of %d came", a.Events, n)
	}
	return a.CPU / float64(n), err
}

// fresh is a turner's.
func (d *driver) fresh(context.Context) error {
	_, err := d.order("fresh")
	return err
}

// close ends the driver, and with it its CLI.
func (d *driver) close() error { return errors.Join(d.lines.close(), os.RemoveAll(d.dir)) }

func inMicros(ns []int64) []float64 {
	out := make([]float64, len(ns))
	for i, v := range ns {
		out[i] = float64(v) / 1e3
	}
	return out
}

// drivers starts the SDKs that can be installed, each with a session of the given configuration; for the others it
// prints NOT RUN.
func (r *run) drivers(ctx context.Context, cli string, configs map[string]map[string]any) map[string]*driver {
	out := map[string]*driver{}
	for _, s := range sdks {
		d, err := s.drive(ctx, r.cfg.Module, cli, configs[s.name])
		if err != nil {
			fmt.Fprintf(r.cfg.Log, "bench: SDK for %s NOT RUN: %v\n", s.name, err)
			continue
		}
		out[s.name] = d
	}
	return out
}

// throughShim is the SDK for Node with the bridge in the place of its CLI.
func (r *run) throughShim(ctx context.Context, b *bridge, config map[string]any) (*driver, error) {
	// Called by the name of the CLI, the server's program is the shim.
	server, err := filepath.Abs(r.cfg.Server)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(b.dir, "copilot")
	if err := os.Symlink(server, path); err != nil {
		return nil, err
	}
	return sdks[0].drive(ctx, r.cfg.Module, path, config, "COPILOT_GRPC_TARGET="+b.unix)
}
