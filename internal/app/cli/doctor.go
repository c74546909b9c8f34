package cli

import (
	"context"
	"fmt"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

const doctorUsage = `Checks whether a server with the same flags would work, and reports how to fix each problem.
Without --start it changes nothing. The exit code is 1 if something is missing.`

// marks are how grave a finding is, for people.
var marks = map[runtime.Level]string{
	runtime.LevelOK: "ok", runtime.LevelWarning: "look", runtime.LevelError: "MISSING",
}

// newDoctor returns the command line of doctor, and whether it is to start the CLI.
func newDoctor() (f *serverCommand, start *bool) {
	c := app.DefaultConfig()
	c.LogLevel = "error"
	f = newServerCommand("doctor", doctorUsage, &c)
	return f, f.Bool("start", false, "also install the CLI if it is missing, start it, and end it")
}

func doctor(ctx context.Context, p *program, args []string) error {
	f, start := newDoctor()
	if err := f.read(p, args); err != nil {
		return err
	}
	c := f.config
	logger, err := c.NewLogger(p.stderr)
	if err != nil {
		return usageError{err}
	}
	found := app.Diagnose(ctx, *c, *start, app.WithLogger(logger))
	for _, one := range found {
		fmt.Fprintf(p.stdout, "%-8s %s: %s\n", marks[one.Level], one.Subject, one.Text)
		if one.Remedy != "" && one.Level != runtime.LevelOK {
			fmt.Fprintf(p.stdout, "%-8s fix: %s\n", "", one.Remedy)
		}
	}
	if app.Grave(found) {
		return errReported
	}
	return nil
}
