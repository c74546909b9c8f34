package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/app/demo"
)

const demoUsage = `Runs a demonstration that takes a few seconds: a server with the real Copilot CLI (installed if
none is found), a scripted model, and a client with a tool and a permission handler. It needs no
account, and removes all its files.`

func setupDemo(p *program, f *flags) action {
	c := app.DefaultConfig()
	c.Version, c.LogLevel = p.version, "error"
	f.StringVar(&c.CLIPath, "cli", "", "`path` of the copilot executable; also COPILOT_CLI_PATH (default: searched "+
		"on PATH, or else installed)")
	f.BoolVar(&c.NoInstall, "no-install", false, "fail if no CLI is found, instead of installing a private copy")
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "`level` of the log: debug, info, warn, error")
	return func(ctx context.Context, _ []string) error {
		return showDemo(ctx, p, c)
	}
}

func showDemo(ctx context.Context, p *program, c app.Config) error {
	logger, err := c.NewLogger(p.stderr, new(slog.LevelVar))
	if err != nil {
		return usageError{err}
	}
	outliveReaders()
	fmt.Fprint(p.stdout, "The GitHub Copilot CLI behind gRPC, with a script in place of a model.\n\n")
	err = demo.Run(ctx, demo.Config{
		App: c, Options: []app.Option{app.WithLogger(logger)}, Out: p.stdout, Colour: p.colours(),
	})
	if err != nil {
		return fmt.Errorf("%w\n\"%s doctor\" may know what is missing", err, self())
	}
	p.nextSteps()
	return nil
}

// nextSteps says how to go on without the demo.
func (p *program) nextSteps() {
	fmt.Fprintf(p.stdout, "\nTry it yourself. In one terminal:\n\n  %s serve --offline-model %s\n\nand in another:\n\n",
		self(), app.OfflineDefault)
	for _, line := range examples(defaultSocket(), false) {
		fmt.Fprintln(p.stdout, "  "+line)
	}
	fmt.Fprintln(p.stdout)
}

// colours tells whether stdout shows colours, and the user wants them.
func (p *program) colours() bool {
	return isTerminal(p.stdout) && p.getenv("NO_COLOR") == "" && p.getenv("TERM") != "dumb"
}
