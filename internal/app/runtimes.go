package app

import (
	"log/slog"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
)

// Progress receives reports of long steps while the CLI is prepared.
type Progress func(clibin.Progress)

// NewRunner returns the way to the CLI that a valid configuration describes.
func (c *Config) NewRunner(logger *slog.Logger, progress Progress) runtime.Runner {
	if c.Dial != "" {
		return &runtime.Dialer{Address: c.Dial, Token: c.DialToken}
	}
	return &runtime.Spawner{TestedOnly: c.TestedCLIOnly, Locator: clibin.Locator{
		Explicit: c.CLIPath, Private: c.InstallCLI, NoInstall: c.NoInstall, Verify: clibin.Verify(c.VerifyCLI),
		Logger: logger,
		Progress: func(p clibin.Progress) {
			logProgress(logger, p)
			if progress != nil {
				progress(p)
			}
		},
	}}
}

func runner(c *Config, set *settings) runtime.Runner {
	if set.runner != nil {
		return set.runner
	}
	return c.NewRunner(set.logger, set.progress)
}

// progressEvery is how often something that takes long is logged.
const progressEvery = 10 * time.Second

// logProgress logs the beginning, the end, and now and then that it still goes on.
func logProgress(logger *slog.Logger, p clibin.Progress) {
	seconds := p.Elapsed.Round(time.Second)
	attrs := []any{
		slog.String("stage", string(p.Stage)), slog.String("what", p.Text), slog.Duration("elapsed", seconds),
	}
	switch {
	case p.Err != nil: // whoever needs the CLI has the error
	case p.Done:
		logger.Info("copilot CLI is ready", attrs...)
	case seconds%progressEvery == 0:
		logger.Info("preparing the copilot CLI", attrs...)
	}
}
