package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/filewatch"
)

// reloading reads the configuration anew at SIGHUP and when its file changes, until stop is
// called, which waits for that. A server that has no file to read ends at SIGHUP, as ever:
// its terminal has gone.
func (p *program) reloading(
	ctx context.Context, a *app.App, s *serveCommand, args []string, logger *slog.Logger,
) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	reload := func() { p.reload(a, args, logger) }
	if s.file != "" {
		tasks.Go(func() {
			filewatch.Watch(ctx, filewatch.Every, func() []string { return []string{s.file} }, reload)
		})
	}
	hangups := make(chan os.Signal, 1)
	if s.file != "" || s.config.Policy != "" || s.config.TLSCert != "" {
		signal.Notify(hangups, syscall.SIGHUP)
		tasks.Go(func() {
			for {
				select {
				case <-hangups:
					reload()
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return func() {
		signal.Stop(hangups)
		cancel()
		tasks.Wait()
	}
}

// reload reads the configuration again. Errors are logged, and change nothing.
func (p *program) reload(a *app.App, args []string, logger *slog.Logger) {
	next, err := p.serverConfig(args)
	if err == nil {
		err = next.check()
	}
	if err != nil {
		logger.Error("reloading the configuration failed, the previous one remains in force", slog.Any("error", err))
		return
	}
	_ = a.Reload(*next.config) // which logs what is wrong
}
