package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

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

// newServerCommand returns the command line of the command of that name. logLevel is the default of the log's level.
func (p *program) newServerCommand(name, usage, logLevel string) *serverCommand {
	c := app.DefaultConfig()
	c.Version, c.LogLevel = p.version, logLevel
	if dir, err := app.DefaultDataDir(); err == nil {
		c.DataDir = dir
	}
	table := c.Table()
	s := &serverCommand{flags: newFlags(name, "[flags]", usage), config: &c,
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
	var text []byte // nil is no file
	if s.file != "" {
		var err error
		if text, err = readFile("the file of settings", s.file, maxConfig); err != nil {
			return usageError{err}
		}
	}
	if err := s.loader.Load(p.getenv, s.file, text); err != nil {
		return wrongSettings(append(flatten(err), s.invalid()...))
	}
	observeEnv(p, s.config)
	return nil
}

// invalid returns what is wrong with the settings, each fault with the source of the value.
func (s *serverCommand) invalid() []error {
	c := s.config
	faults := flatten(c.Validate())
	for i, err := range faults {
		faults[i] = s.sourced(err)
	}
	tcp := c.Web || c.WebListen != "" ||
		slices.ContainsFunc(c.Listen, func(address string) bool { return !strings.HasPrefix(address, "unix:") })
	if c.Token == "" && c.Policy == "" && c.LogFormat != "text" && tcp {
		faults = append(faults, errors.New("token: a TCP address requires --token unless log_format is text: a random "+
			"token is printed to people only"))
	}
	return faults
}

func (s *serverCommand) check() error { return wrongSettings(s.invalid()) }

func flatten(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // a fault may wrap several errors itself
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	var parts []error
	for _, part := range joined.Unwrap() {
		parts = append(parts, flatten(part)...)
	}
	return parts
}

// wrongSettings is the error about faults of the settings; nil if there are none.
func wrongSettings(faults []error) error {
	switch len(faults) {
	case 0:
		return nil
	case 1:
		return usageError{faults[0]}
	}
	return usageError{fmt.Errorf("%d settings are wrong:\n%w", len(faults), errors.Join(faults...))}
}

// readFile reads a file that has at most a number of bytes.
func readFile(what, path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", what, err)
	case info.Size() > most:
		return nil, fmt.Errorf("%s %q has %d bytes, more than %d", what, path, info.Size(), most)
	}
	return os.ReadFile(path)
}

// sourced adds to an error of a setting where its value is from.
func (s *serverCommand) sourced(err error) error {
	wrong, ok := errors.AsType[*app.KeyError](err)
	if !ok || s.loader.Origins[wrong.Key].Kind == setting.FromDefault {
		return err
	}
	return s.loader.Origins[wrong.Key].Wrong(wrong.Key, wrong.Err)
}
