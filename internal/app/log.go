package app

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

const (
	formatText = "text"
	formatJSON = "json"
)

var logFormats = []string{formatText, formatJSON}

func parseLevel(name string) (level slog.Level, err error) {
	if level.UnmarshalText([]byte(name)) != nil || strings.ContainsAny(name, "+-") {
		return 0, fmt.Errorf("log level %q is not one of debug, info, warn, error", name)
	}
	return level, nil
}

// NewLogger returns the logger of a valid configuration, writing to w. It sets level, which can change later.
func (c *Config) NewLogger(w io.Writer, level *slog.LevelVar) (*slog.Logger, error) {
	now, err := parseLevel(c.LogLevel)
	if err != nil {
		return nil, err
	}
	level.Set(now)
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if c.LogFormat == formatJSON {
		handler = slog.NewJSONHandler(w, options)
	}
	return slog.New(handler.WithAttrs(c.Cluster.attrs())), nil
}
