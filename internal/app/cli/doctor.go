package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

const doctorUsage = `Checks whether a server with the same settings would work, and reports how to fix each problem: the
CLI and its executable, addresses, directories and their space, permissions, the policy with its issuers,
certificates, providers, NATS and the sign-in. Run it as the server's user. Without --start it changes nothing.

With --target or --context on the command line it tries a server that runs, through the proxies in between, and
reports each need that one of them breaks: the connection, the caller's identity, trailers, bidirectional streams,
half-close, the sizes of messages, health and, with --idle, idle streams. It creates no session and changes nothing.
The settings of a server are not checked then; of them only --token has a meaning, the caller's token.

  copilot-grpc doctor
  copilot-grpc doctor --start --config /etc/copilot-grpc/config.yaml
  copilot-grpc doctor --target copilot.example:443 --idle 90s
  copilot-grpc doctor -o json | jq -r '.[] | select(.level != "ok") | .remedy'

A line begins with ok, with look (something may not work, or a server with these settings runs already) or with
MISSING (the server would not work, or a need is broken). The exit code is 1 if a line begins with MISSING, and 2 if
the command line or the file of settings is wrong.`

// marks are how grave a finding is, for people.
var marks = map[runtime.Level]string{
	runtime.LevelOK: "ok", runtime.LevelWarning: "look", runtime.LevelError: "MISSING",
}

type doctorCommand struct {
	*serverCommand
	out *printer
	// start starts a CLI, json prints JSON.
	start, json bool
	// server is the server to try, if the command line names one.
	server *connection
	// idle is how long a stream to it is left idle.
	idle time.Duration
}

func (p *program) newDoctor() *doctorCommand {
	d := &doctorCommand{serverCommand: p.newServerCommand("doctor", doctorUsage, "error")}
	d.out = p.printer(d.flags)
	d.BoolVar(&d.start, "start", false, "also install the CLI if it is missing, start it, and end it")
	d.BoolVar(&d.json, "json", false, "the same as -o json")
	d.server = p.address(d.flags)
	d.DurationVar(&d.idle, "idle", 0, "with --target: also leave a stream idle for this `duration`, such as 90s")
	return d
}

// find returns the findings about a server that runs, or about the settings of one.
func (d *doctorCommand) find(ctx context.Context, p *program) ([]runtime.Finding, error) {
	found := variableFindings(unknownVariables(p))
	if d.given["target"] || d.given["context"] {
		d.server.token = d.config.Token
		tried, err := d.server.probe(ctx, d.idle)
		return append(found, tried...), err
	}
	if faults := d.invalid(); faults != nil {
		return append(found, settingFindings(faults)...), nil
	}
	logger, err := d.config.NewLogger(p.stderr, new(slog.LevelVar))
	if err != nil {
		return nil, err
	}
	return append(found, app.Diagnose(ctx, *d.config, d.start, app.WithLogger(logger))...), nil
}

// mixed refuses flags that have no meaning with or without a target.
func (d *doctorCommand) mixed() error {
	tries := d.given["target"] || d.given["context"]
	for name, given := range d.given {
		isSetting := d.tabled(name) && name != "token" || name == "start" || name == "config"
		switch {
		case given && tries && isSetting:
			return usageError{fmt.Errorf("--%s is about a server to be started, not about that of --target or --context", name)}
		case given && !tries && name == "idle":
			return usageError{errors.New("--idle wants --target or --context")}
		}
	}
	return nil
}

func doctor(ctx context.Context, p *program, args []string) error {
	d := p.newDoctor()
	if err := d.read(p, args); err != nil {
		return err
	}
	if err := d.mixed(); err != nil {
		return err
	}
	if d.json {
		d.out.format = formatJSON
	}
	found, err := d.find(ctx, p)
	if err != nil {
		return err
	}
	if err := d.out.findings(found); err != nil {
		return err
	}
	if app.Grave(found) {
		return errReported
	}
	return nil
}

// variableFindings warns of variables that no setting reads.
func variableFindings(unknown map[string]string) (found []runtime.Finding) {
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		f := runtime.Finding{Level: runtime.LevelWarning, Subject: "environment",
			Text: "no setting reads the variable " + name, Remedy: "unset " + name}
		if near := unknown[name]; near != "" {
			f.Remedy = "rename it to " + near + ", or unset it"
		}
		found = append(found, f)
	}
	return found
}

func settingFindings(faults []error) (found []runtime.Finding) {
	for _, fault := range faults {
		found = append(found, runtime.Finding{Level: runtime.LevelError, Subject: "settings", Text: fault.Error(),
			Remedy: "correct the flag, the environment variable or the key of the file"})
	}
	return found
}

func (p *printer) findings(found []runtime.Finding) error {
	p.page()
	if p.forPeople() {
		for _, f := range found {
			fmt.Fprintf(p.out, "%-8s %s: %s\n", marks[f.Level], f.Subject,
				terminal.CleanLine(strings.ReplaceAll(f.Text, "\n", "; ")))
			if f.Remedy != "" && f.Level != runtime.LevelOK {
				fmt.Fprintf(p.out, "%-8s fix: %s\n", "", terminal.CleanLine(f.Remedy))
			}
		}
		return nil
	}
	var list table
	for _, f := range found {
		list.add(struct {
			Level   runtime.Level `json:"level"`
			Subject string        `json:"subject"`
			Text    string        `json:"text"`
			Remedy  string        `json:"remedy,omitempty"`
		}(f))
	}
	return p.print(list)
}
