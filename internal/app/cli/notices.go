package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/setting"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// notices prints what the client library logs, such as a connection that breaks, as a line for people: each message
// once until reset is called. It implements [slog.Handler].
type notices struct {
	out io.Writer
	// patience is how long a broken stream is opened again, which its message says; 0 says nothing.
	patience time.Duration

	mu      sync.Mutex
	printed map[string]bool
	// warned says that something was wrong since reset.
	warned bool
	// muted says that nothing more is printed.
	muted bool
}

func (n *notices) logger() *slog.Logger { return slog.New(n) }

// reset makes messages be printed again, and reports whether one was a warning: the connection was broken.
func (n *notices) reset() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	warned := n.warned
	n.printed, n.warned = nil, false
	return warned
}

// mute ends the printing: what the library fails to do after the end of a command tells the user nothing new.
func (n *notices) mute() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.muted = true
}

// Enabled implements slog.Handler.
func (*notices) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (n *notices) Handle(_ context.Context, record slog.Record) error {
	line := record.Message
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" || a.Key == "detail" {
			line += ": " + a.Value.String()
		}
		return true
	})
	if n.patience > 0 && strings.HasSuffix(record.Message, " broken") {
		line += fmt.Sprintf("; reconnecting for up to %s", setting.Short(n.patience))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	key := record.Message
	if record.Level < slog.LevelWarn {
		key = line // progress has different details
	} else {
		n.warned = true
	}
	if n.muted || n.printed[key] {
		return nil
	}
	if n.printed == nil {
		n.printed = map[string]bool{}
	}
	n.printed[key] = true
	_, err := fmt.Fprintln(n.out, terminal.CleanLine(line))
	return err
}

// WithAttrs implements slog.Handler.
func (n *notices) WithAttrs([]slog.Attr) slog.Handler { return n }

// WithGroup implements slog.Handler.
func (n *notices) WithGroup(string) slog.Handler { return n }
