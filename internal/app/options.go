package app

import (
	"cmp"
	"log/slog"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

type settings struct {
	logger   *slog.Logger
	runner   runtime.Runner
	progress Progress
	level    *slog.LevelVar
	backoff  runtime.Backoff
	breaker  runtime.Breaker
	probe    bool
	host     bridge.HostCallbacks
	// Only tests set these: how often the server deletes journal files beyond their retention (0 is the default of
	// package journal), and what receives spans, too.
	tidy  time.Duration
	spans sdktrace.SpanExporter
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

// WithLevel lets Reload set the level of the log.
func WithLevel(level *slog.LevelVar) Option { return func(s *settings) { s.level = level } }

// WithRunner replaces the way to a CLI that the configuration describes, such as by one
// in this process.
func WithRunner(r runtime.Runner) Option { return func(s *settings) { s.runner = r } }

// WithHostCallbacks has h receive what the CLI calls about AHP hosts. It is for a server of one program (Config.SingleClient).
func WithHostCallbacks(h bridge.HostCallbacks) Option { return func(s *settings) { s.host = h } }

// WithProgress tells f of the installation and unpacking of the CLI, in addition to the
// log. It must not block.
func WithProgress(f Progress) Option { return func(s *settings) { s.progress = f } }

// WithProbe has the App start a CLI when it runs, and be ready only once that has answered.
func WithProbe() Option { return func(s *settings) { s.probe = true } }

// WithRestarts sets when CLI processes that ended are started again. The defaults are those of package runtime.
func WithRestarts(backoff runtime.Backoff, breaker runtime.Breaker) Option {
	return func(s *settings) { s.backoff, s.breaker = backoff, breaker }
}
