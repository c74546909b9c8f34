package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
)

// DefaultDataDir returns the default folder of the data.
func DefaultDataDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "copilot-grpc"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state", "copilot-grpc"), nil
}

// readProvider reads the file of a provider, which has to be a JSON object.
func (c *Config) readProvider(name string) ([]byte, error) {
	text, err := os.ReadFile(c.Providers[name])
	if err != nil {
		return nil, fmt.Errorf("provider %q: %w", name, err)
	}
	if _, err := jsonobj.Parse(text); err != nil {
		return nil, fmt.Errorf("%q is not a JSON object: %w", name, err)
	}
	return text, nil
}

// openDirectory opens what outlives the server, the cluster's storage or the data directory, and ends what a killed
// predecessor left running.
func (a *App) openDirectory(ctx context.Context, set *settings, own runtime.Profile) (_ bridge.Directory, err error) {
	if a.config.Dial == "" {
		if n := process.SweepAbandoned(); n > 0 {
			a.logger.Warn("ended processes that a killed server left running", slog.Int("processes", n))
		}
	}
	if !a.config.Cluster.on() {
		return a.openStore(set.tidy)
	}
	if a.member, err = a.join(ctx, own, set.tidy); err != nil {
		return nil, err
	}
	return a.member.directory, nil
}

// openStore takes the data directory, if there is one to be. A zero tidyEvery is the journals' own.
func (a *App) openStore(tidyEvery time.Duration) (bridge.Directory, error) {
	if a.config.DataDir == "" {
		return nil, nil
	}
	dir, err := filepath.Abs(a.config.DataDir)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(store.Config{Dir: dir, Journals: journal.WriterConfig{
		Fsync: journal.Fsync(a.config.Fsync), Interval: a.config.FsyncInterval,
		MaxBytes: a.config.JournalBytes, MaxAge: a.config.JournalAge, TidyEvery: tidyEvery, Logger: a.logger,
	}})
	if errors.Is(err, store.ErrInUse) {
		return nil, wrong("data_dir", occupied(err, dir))
	}
	if errors.Is(err, store.ErrLater) {
		return nil, wrong("data_dir", err)
	}
	if err != nil {
		return nil, err
	}
	a.closers.add("data directory", func(context.Context) error { return s.Close() })
	return s, nil
}
