package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
)

// maxConfig bounds a file of settings.
const maxConfig = 1 << 20

// serverCommand is the command line of a command that takes the settings of a server.
type serverCommand struct {
	*flags
	config *app.Config
	loader *setting.Loader
	// file is where the settings are from that neither a flag nor a variable sets.
	file string
}

// newServerCommand returns the command line of the command of that name. c has the defaults.
func newServerCommand(name, usage string, c *app.Config) *serverCommand {
	table := c.Table()
	s := &serverCommand{flags: newFlags(name, "[flags]", usage), config: c,
		loader: setting.NewLoader(table, app.EnvPrefix)}
	s.table = table
	s.StringVar(&s.file, "config", "", "`file` of settings, in YAML (docs/configuration.md); reloaded at SIGHUP and "+
		"when it changes")
	s.loader.AddFlags(s.FlagSet)
	return s
}

// read sets the configuration by the command line, the environment and the file.
func (s *serverCommand) read(p *program, args []string) error {
	if err := s.parseOnly(p, args); err != nil {
		return err
	}
	text, err := readConfig(s.file)
	if err != nil {
		return usageError{err}
	}
	if err := s.loader.Load(p.getenv, s.file, text); err != nil {
		return usageError{err}
	}
	return nil
}

// readConfig reads a file of settings; nil is none.
func readConfig(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the file of settings: %w", err)
	case info.Size() > maxConfig:
		return nil, fmt.Errorf("the file of settings %q has %d bytes, more than %d", path, info.Size(), maxConfig)
	}
	text, err := os.ReadFile(path)
	if text == nil && err == nil {
		text = []byte{}
	}
	return text, err
}

// sourced adds to an error of a setting where its value is from.
func (s *serverCommand) sourced(err error) error {
	var wrong *app.KeyError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%w (from: %s)", err, s.loader.Origins[wrong.Key])
	}
	return err
}
