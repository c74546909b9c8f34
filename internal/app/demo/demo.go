// Package demo demonstrates the program in a few seconds and without an account: a server with the real CLI and a
// scripted model, and a client that uses it like any other program.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

const (
	// readyTimeout is how long the CLI may take to be ready: at the first use it is
	// downloaded.
	readyTimeout = 15 * time.Minute
	// talkTimeout is how long the rest may take, which takes seconds.
	talkTimeout = 2 * time.Minute
	// progressEvery is how often something that takes long is mentioned.
	progressEvery = 5 * time.Second
)

// Config says how to show it.
type Config struct {
	// App is how to come by the CLI. Its addresses, directories and model are the
	// demo's own.
	App app.Config
	// Options are for the App.
	Options []app.Option
	// Out is where it is shown; Colour says that it understands colours.
	Out    io.Writer
	Colour bool
}

// Run shows it. It leaves nothing behind but, if there was none, a copy of the CLI in
// the user's cache.
func Run(ctx context.Context, c Config) (err error) {
	dir, err := os.MkdirTemp("", "copilot-grpc-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d := &demo{screen: newScreen(c.Out, c.Colour)}
	a, err := d.build(ctx, c, dir)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(running) }()
	err = d.show(ctx, a.Target())
	stop()
	if bad := <-ended; bad != nil {
		err = errors.Join(err, fmt.Errorf("shut down the server: %w", bad))
	}
	if err == nil {
		d.screen.say("end", "server and CLI have ended, and their files are removed")
	}
	return err
}

type demo struct {
	screen *screen
	seen   seen
}

func (d *demo) build(ctx context.Context, c Config, dir string) (*app.App, error) {
	work, temp := filepath.Join(dir, "work"), filepath.Join(dir, "tmp")
	if err := errors.Join(os.Mkdir(work, 0o700), os.Mkdir(temp, 0o700)); err != nil {
		return nil, err
	}
	c.App.Listen = []string{"unix:" + filepath.Join(dir, "s.sock")}
	c.App.Home, c.App.UserHome, c.App.WorkDir = filepath.Join(dir, "copilot"), dir, work
	// The CLI leaves caches in the directory for temporary files.
	c.App.Env = map[string]string{"TMPDIR": temp}
	c.App.OfflineModel = app.OfflineDefault
	// The client ends its streams itself: there is nothing to wait for.
	c.App.DrainGrace = time.Second
	return app.New(ctx, c.App, append(c.Options, app.WithProgress(d.progress))...)
}

// progress shows how far the CLI is from being ready.
func (d *demo) progress(p clibin.Progress) {
	elapsed := p.Elapsed.Round(time.Second)
	switch {
	case p.Done:
		d.screen.say("CLI", "%s: done after %v", p.Text, p.Elapsed.Round(100*time.Millisecond))
	case elapsed == 0:
		d.screen.say("CLI", "%s", p.Text)
	case elapsed%progressEvery == 0:
		d.screen.say("CLI", "still running after %v", elapsed)
	}
}

// show talks to the server as any client would.
func (d *demo) show(ctx context.Context, target string) error {
	c, err := copilot.Dial(ctx, target, copilot.WithName("demo"), copilot.WithoutReconnect())
	if err != nil {
		return err
	}
	defer c.Close()
	d.screen.say("server", "%s speaks gRPC, and a script plays the model", target)
	if err := d.ready(ctx, c); err != nil {
		return fmt.Errorf("the copilot CLI is not ready: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, talkTimeout, fmt.Errorf("no result after %v", talkTimeout))
	defer cancel()
	return d.talk(ctx, c)
}

func (d *demo) ready(ctx context.Context, c *copilot.Client) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if _, err := c.Runtimes().Ping(ctx, &bridgev1.PingRequest{}); err != nil {
		return copilot.FromError(err)
	}
	list, err := c.Runtimes().ListRuntimes(ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil {
		return copilot.FromError(err)
	}
	for _, rt := range list.GetRuntimes() {
		d.screen.say("CLI", "version %s runs as process %d", rt.GetCliVersion(), rt.GetPid())
	}
	return nil
}
