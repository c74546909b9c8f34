package app

import (
	"cmp"
	"log/slog"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

// settings are what options set.
type settings struct {
	logger   *slog.Logger
	runner   runtime.Runner
	progress Progress
}

func newSettings(options []Option) settings {
	set := settings{logger: slog.New(slog.DiscardHandler)}
	for _, option := range options {
		option(&set)
	}
	return set
}

// Option sets what no command line can.
type Option func(*settings)

// WithLogger sets where the log goes. Default: nowhere.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) { s.logger = cmp.Or(logger, s.logger) }
}

// WithRunner replaces the way to a CLI that the configuration describes, such as by one
// in this process.
func WithRunner(r runtime.Runner) Option { return func(s *settings) { s.runner = r } }

// WithProgress tells f of the installation and unpacking of the CLI, in addition to the
// log. It must not block.
func WithProgress(f Progress) Option { return func(s *settings) { s.progress = f } }
