package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

const doctorUsage = `Checks whether a server with the same settings would work, and reports how to fix each problem: the
CLI and its executable, addresses, directories and their space, permissions, the policy with its issuers,
certificates, providers, NATS and the sign-in. Run it as the server's user. Without --start it changes nothing.

  copilot-grpc doctor
  copilot-grpc doctor --start --config /etc/copilot-grpc/config.yaml
  copilot-grpc doctor -o json | jq -r '.[] | select(.level != "ok") | .remedy'

A line begins with ok, with look (something may not work, or a server with these settings runs already) or with
MISSING (the server would not work). The exit code is 1 if a line begins with MISSING, and 2 if the command line or
the file of settings is wrong.`

// marks are how grave a finding is, for people.
var marks = map[runtime.Level]string{
	runtime.LevelOK: "ok", runtime.LevelWarning: "look", runtime.LevelError: "MISSING",
}

// doctorCommand is the command line of doctor.
type doctorCommand struct {
	*serverCommand
	out *printer
	// start starts a CLI, json prints JSON.
	start, json bool
}

func (p *program) newDoctor() *doctorCommand {
	d := &doctorCommand{serverCommand: p.newServerCommand("doctor", doctorUsage, "error")}
	d.out = p.printer(d.flags)
	d.BoolVar(&d.start, "start", false, "also install the CLI if it is missing, start it, and end it")
	d.BoolVar(&d.json, "json", false, "the same as -o json")
	return d
}

func doctor(ctx context.Context, p *program, args []string) error {
	d := p.newDoctor()
	if err := d.read(p, args); err != nil {
		return err
	}
	if d.json {
		d.out.format = formatJSON
	}
	found := variableFindings(unknownVariables(p))
	if faults := d.invalid(); faults != nil {
		found = append(found, settingFindings(faults)...)
	} else {
		logger, err := d.config.NewLogger(p.stderr)
		if err != nil {
			return err
		}
		found = append(found, app.Diagnose(ctx, *d.config, d.start, app.WithLogger(logger))...)
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

// settingFindings are the faults of the settings.
func settingFindings(faults []error) (found []runtime.Finding) {
	for _, fault := range faults {
		found = append(found, runtime.Finding{Level: runtime.LevelError, Subject: "settings", Text: fault.Error(),
			Remedy: "correct the flag, the environment variable or the key of the file"})
	}
	return found
}

// findings prints findings, for people or as JSON.
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
	list := []any{}
	for _, f := range found {
		list = append(list, struct {
			Level   runtime.Level `json:"level"`
			Subject string        `json:"subject"`
			Text    string        `json:"text"`
			Remedy  string        `json:"remedy,omitempty"`
		}(f))
	}
	return p.print(table{}, list)
}
