package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/internal/setting"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// notices prints what the client library logs, such as a connection that breaks, as a line for people: each message
// once until the connection is back. It implements [slog.Handler].
type notices struct {
	out io.Writer
	// patience is how long a broken stream is opened again, which its message says; 0 says nothing.
	patience time.Duration

	mu      sync.Mutex
	printed map[string]bool
	broken  bool
	muted   bool
}

func (n *notices) logger() *slog.Logger { return slog.New(n) }

// restored tells of a connection that is back, if a stream was broken.
func (n *notices) restored() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.broken && !n.muted {
		fmt.Fprintln(n.out, "reconnected")
	}
	n.printed, n.broken = nil, false
}

// intercept is a [grpc.StreamClientInterceptor] that notices when a stream has messages again.
func (n *notices) intercept(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, err
	}
	return noticed{stream, n}, nil
}

type noticed struct {
	grpc.ClientStream
	notices *notices
}

func (s noticed) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		s.notices.restored()
	}
	return err
}

// mute ends the printing: what the library fails to do after the end of a command tells the user nothing new.
func (n *notices) mute() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.muted = true
}

func (*notices) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (n *notices) Handle(_ context.Context, record slog.Record) error {
	line := record.Message
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" || a.Key == "detail" {
			line += ": " + a.Value.String()
		}
		return true
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if strings.HasSuffix(record.Message, " broken") {
		line += fmt.Sprintf("; reconnecting for up to %s", setting.Short(n.patience))
		n.broken = true
	}
	key := record.Message
	if record.Level < slog.LevelWarn {
		key = line // progress has different details
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

func (n *notices) WithAttrs([]slog.Attr) slog.Handler { return n }

func (n *notices) WithGroup(string) slog.Handler { return n }
