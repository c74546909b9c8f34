package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"strings"
	"syscall"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/app/chat"
)

const chatUsage = `Talks to a session: a new one, or SESSION. Leaving ends only the chat; the session goes on, and "copilot-grpc chat
SESSION" comes back to it with its whole history.

Enter sends, and queues while a turn runs; Tab steers the running turn. Ctrl-C aborts the turn, twice it leaves. When the
agent asks for a permission, y approves it once, s for the session, and n refuses it. /help lists the commands; /attach
FILE attaches a file of this machine to the next prompt, --file to the first.

With --plain, and where stdin or stdout is no terminal, the conversation is in lines: without colours and without moving
the cursor. A script's lines are taken one at a time, the next one when the turn has ended or asks something.`

type chatOptions struct {
	connection *connection
	plain      bool
	model, dir string
	files      list
}

func setupChat(p *program, f *flags) action {
	o := chatOptions{connection: p.connection(f)}
	f.BoolVar(&o.plain, "plain", false, "lines instead of a screen: for screen readers, pipes and slow connections")
	f.StringVar(&o.model, "model", "", "new sessions: `id` of the model (default: the server's)")
	f.StringVar(&o.dir, "dir", "", "new sessions: the agent's working `directory` on the server's machine "+
		"(default: this one if the server is on this machine)")
	f.Var(&o.files, "file", "attach this `file` to the first prompt; repeatable")
	return func(ctx context.Context, args []string) error {
		if err := checkFiles(o.files); err != nil {
			return err
		}
		if len(args) == 0 {
			return o.talk(ctx, p, "")
		}
		if f.given["model"] || f.given["dir"] {
			return usageError{errors.New("--model and --dir are for new sessions")}
		}
		return o.talk(ctx, p, args[0])
	}
}

// checkFiles checks that the files of --file can be attached, before a session is made for them.
func checkFiles(paths []string) error {
	for _, path := range paths {
		if _, err := chat.FileSize(path); err != nil {
			return usageError{fmt.Errorf("--file: %w", err)}
		}
	}
	return nil
}

// talk has a conversation in a session, in a new one if the id is empty.
func (o *chatOptions) talk(ctx context.Context, p *program, session string) error {
	o.connection.notices.mute() // the conversation tells of broken connections
	client, err := o.connection.dial(ctx, copilot.WithName(personName()))
	if err != nil {
		return err
	}
	defer client.Close()
	o.connection.session = session
	link, err := chat.Open(ctx, client, chat.Options{
		SessionID: session, Model: o.model, Directory: o.directory(), Name: personName(), Files: o.files,
		StateDir: app.DefaultDataDir, Command: o.command,
	})
	if err != nil {
		return o.connection.failed(ctx, client, err)
	}
	defer link.Close()
	err = o.connection.failed(ctx, client, p.converse(ctx, link, o.plain))
	fmt.Fprintf(p.stderr, "Come back with: %s\n", o.command(link.SessionID()))
	return err
}

// command is the command line that comes back to a session.
func (o *chatOptions) command(session string) string {
	line := self() + " chat"
	if given := o.connection.set.given; given["target"] {
		line += " --target " + quote(o.connection.target)
	} else if given["context"] {
		line += " --context " + quote(o.connection.context)
	}
	return line + " " + operand(session)
}

// converse shows the conversation as the terminal allows it.
func (p *program) converse(ctx context.Context, link *chat.Link, plain bool) error {
	isPerson := isTerminal(p.stdin)
	if !plain && isPerson && isTerminal(p.stdout) && p.getenv("TERM") != "dumb" {
		return chat.Run(ctx, link, p.stdin, p.stdout.w, p.environ())
	}
	ctx, interrupts, release := ctrlC(ctx)
	defer release()
	return chat.Plain(ctx, link, p.stdin, p.stdout, isPerson, interrupts)
}

// ctrlC tells of each Ctrl-C, which no longer ends the context. Other signals still do.
func ctrlC(ctx context.Context) (_ context.Context, interrupts <-chan struct{}, release func()) {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	told, signals := make(chan struct{}), make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for {
			select {
			case sig := <-signals:
				if sig != os.Interrupt {
					cancel()
					return
				}
				select {
				case told <- struct{}{}:
				case <-inner.Done():
				}
			case <-inner.Done():
				return
			}
		}
	}()
	return inner, told, func() {
		signal.Stop(signals)
		cancel()
	}
}

// directory is the agent's working directory for a new session; empty for the server's.
func (o *chatOptions) directory() string {
	if o.dir != "" || !strings.HasPrefix(o.connection.server.Target, "unix:") {
		return o.dir
	}
	here, err := os.Getwd()
	if err != nil {
		return ""
	}
	return here
}

// personName is the name of the person for others in a session: USER@HOST.
func personName() string {
	name := "somebody"
	if who, err := user.Current(); err == nil {
		name = who.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
