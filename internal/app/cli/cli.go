// Package cli is the command line of copilot-grpc.
package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	// exitNoServer is for clients whose server does not answer.
	exitNoServer = 6
	// exitInterrupted is what a shell gives a program that a second signal ended.
	exitInterrupted = 130
)

// program is one run of the command, with all that it touches of the world.
type program struct {
	version string
	stdin   io.Reader
	stdout  *output
	stderr  io.Writer
	// noPager says that no text goes to a pager.
	noPager bool
	// patience is how long a command waits for a server that goes away.
	patience time.Duration
	getenv   func(string) string
	// environ lists the environment, as [os.Environ] does.
	environ func() []string
	// configDir is the user's directory for configuration, as of [os.UserConfigDir].
	configDir func() (string, error)
	// again tells of the second signal, after the first has ended the context.
	again context.Context
	// processors sets how many processors the goroutines of this process use.
	processors func(n int)
}

// command is one of the program's commands, or a group of commands.
type command struct {
	name string
	// args are the arguments and flags, for the first line of the help. Unless checksArgs is set, the number of
	// arguments is checked by them: SESSION is one, [SESSION] may be missing, and of SESSION... there are one or more.
	args       string
	checksArgs bool
	// summary is the line about the command in lists.
	summary string
	// help is what the command does, with examples.
	help string
	// setup adds the command's flags, and returns what runs the command once they are read.
	setup func(p *program, f *flags) action
	// complete lists what shells offer for an argument; nil for none.
	complete completion
	// flags and run replace help and setup in commands that read their command line more than once.
	flags func(p *program) *flags
	run   func(ctx context.Context, p *program, args []string) error
	// commands are those of a group, which has nothing of its own but name and summary.
	commands []command
}

// action runs a command with its arguments, from which the flags are removed.
type action func(ctx context.Context, args []string) error

// commands are all there are, in the order in which help lists them.
func commands() []command {
	return []command{
		{name: "serve", args: "[flags]", summary: "serve the Copilot CLI over gRPC",
			flags: func(p *program) *flags { return p.newServe().flags }, run: serve},
		{name: "demo", args: "[flags]", summary: "run a short demonstration", help: demoUsage, setup: setupDemo},
		{name: "doctor", args: "[flags]", summary: "report what is missing and how to fix it",
			flags: func(p *program) *flags { return p.newDoctor().flags }, run: doctor},
		{name: "fsck", args: "DIR|FILE [flags]", summary: "verify a data directory or an export, without a server",
			help: fsckUsage, setup: setupFsck},
		{name: "shim", args: "[flags]", summary: "replace the copilot executable for programs of the official SDKs",
			flags: func(*program) *flags { return newShim(new(shimOptions)) }, run: shimCommand},
		{name: "sessions", summary: "list sessions and work with them", commands: sessionCommands()},
		{name: "chat", args: "[SESSION] [flags]", summary: "talk to a session in the terminal", help: chatUsage,
			setup: setupChat, complete: completeSession},
		{name: "inbox", args: "[list | answer ID] [flags]", summary: "show what waits for a person, and answer it",
			help: inboxUsage, setup: setupInbox, checksArgs: true},
		{name: "run", args: "PROMPT [flags]", summary: "send one prompt and print the answer", help: runUsage,
			setup: setupRun},
		{name: "events", args: "SESSION [flags]", summary: "print the events of a session as they happen",
			help: eventsUsage, setup: setupEvents, complete: completeSession},
		{name: "server", args: "[flags]", summary: "print the version, health and limits of the server",
			help: serverUsage, setup: setupServer},
		{name: "top", args: "[flags]", summary: "show what the server does, live", help: topUsage, setup: setupTop},
		{name: "usage", args: "[SESSION] [flags]", summary: "print what sessions have used of models", help: usageUsage,
			setup: setupUsage, complete: completeSession},
		{name: "runtimes", summary: "list CLI processes, drain and replace them", commands: runtimeCommands()},
		{name: "context", summary: "name servers, and choose one", commands: contextCommands()},
		{name: "call", args: "[flags] [METHOD [REQUEST]]", summary: "make one call, without grpcurl", help: callUsage,
			setup: setupCall, complete: completeCall, checksArgs: true},
		{name: "describe", args: "[NAME]", summary: "explain the methods and messages of the API", help: describeUsage,
			setup: setupDescribe, complete: completeDescribe},
		{name: "web", summary: "log a browser in", commands: []command{
			{name: "link", args: "[flags]", summary: "print a link by which a browser logs in", help: webUsage,
				setup: setupWebLink},
		}},
		{name: "issuer", args: "[flags]", summary: "run an OpenID Connect issuer to try out policies",
			help: issuerUsage, setup: setupIssuer},
		{name: "version", summary: "print the version of this program and the supported CLI versions",
			help: versionUsage, setup: setupVersion},
	}
}

// errReported is the error of a command that has said itself what was wrong.
var errReported = errors.New("reported")

// errHelped ends a command that has printed its help. At pflag.ErrHelp cobra would print a second one.
var errHelped = errors.New("helped")

// usageError is a mistake in the command line.
type usageError struct{ error }

// Main runs the program and returns its exit code.
func Main(version string, args []string) int {
	ctx, again, release := signals()
	defer release()
	stdout := &output{w: os.Stdout}
	p := &program{
		version: version, stdin: os.Stdin, stdout: stdout, stderr: newBesides(os.Stderr, stdout), getenv: os.Getenv,
		environ: os.Environ, patience: patience, configDir: os.UserConfigDir,
		again:      again,
		processors: func(n int) { runtime.GOMAXPROCS(n) },
	}
	code := p.main(ctx, standingIn(os.Args[0], args))
	// The outputs end before the input, as those of the CLI: a program that is writing to the input must not fail before
	// it can read why this process ended.
	_ = os.Stderr.Close()
	_ = os.Stdout.Close()
	return code
}

// standingIn makes the program the shim when it is called by the name of the CLI.
func standingIn(name string, args []string) []string {
	if base := strings.TrimSuffix(filepath.Base(name), ".exe"); base == "copilot" {
		return append([]string{"shim"}, args...)
	}
	return args
}

// signals ends the first context at the first signal that asks the program to end, and the other at the second.
func signals() (ctx, again context.Context, release func()) {
	ctx, first := context.WithCancel(context.Background())
	again, second := context.WithCancel(context.Background())
	over := make(chan struct{})
	received := make(chan os.Signal, 2)
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	go func() {
		for _, end := range []func(){first, second} {
			select {
			case <-received:
				end()
			case <-over:
				return
			}
		}
	}()
	return ctx, again, func() {
		signal.Stop(received)
		close(over)
		first()
		second()
	}
}

// outliveReaders keeps the program running when its output has no reader any more, because it must end its parts in
// order. Ignoring the signal instead would make the CLI's shells ignore it too.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

func (p *program) main(ctx context.Context, args []string) int {
	if len(args) == 0 {
		p.help(p.stderr)
		return exitUsage
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		if len(args) == 0 {
			return p.exit(p.root(false), p.printHelp(p.help))
		}
		name, args = args[0], append(slices.Clone(args[1:]), "--help")
	case "-version", "--version":
		name = "version"
	}
	root := p.root(strings.HasPrefix(name, cobra.ShellCompRequestCmd))
	p.completionCommand(root)
	root.SetArgs(append([]string{name}, args...))
	done, err := root.ExecuteContextC(ctx)
	return p.exit(done, err)
}

// exit reports a command's error and turns it into an exit code.
func (p *program) exit(of *cobra.Command, err error) int {
	err = p.stdout.end(err)
	var usage usageError
	var code exitError
	switch {
	case err == nil || errors.Is(err, errHelped):
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		help := strings.TrimSpace("help " + strings.TrimPrefix(of.CommandPath(), of.Root().Name()+" "))
		if !of.HasParent() {
			help = "help"
		}
		fmt.Fprintf(p.stderr, "%s: %v\nsee \"copilot-grpc %s\"\n", of.CommandPath(), err, help)
		return exitUsage
	case !errors.Is(err, errReported):
		fmt.Fprintf(p.stderr, "%s: %v\n", of.CommandPath(), err)
	}
	if isNoServer(err) {
		return exitNoServer
	}
	if p.again.Err() != nil {
		return exitInterrupted
	}
	return exitFailed
}

// printHelp prints a help to stdout, in lines that fit the terminal. It returns errHelped, or the error of stdout.
func (p *program) printHelp(write func(w io.Writer)) error {
	var text bytes.Buffer
	write(&text)
	p.page()
	if _, err := io.WriteString(p.stdout, fit(text.String(), terminalWidth(p.stdout))); err != nil {
		return err
	}
	return errHelped
}

func (p *program) help(w io.Writer) {
	fmt.Fprint(w, "copilot-grpc serves the GitHub Copilot CLI over gRPC.\n\nUsage: copilot-grpc COMMAND "+
		"[flags]\n\nCommands:\n")
	listCommands(w, append(commands(), command{name: completionName, summary: "print a shell completion script"}))
	fmt.Fprint(w, "\n\"copilot-grpc help COMMAND\" lists a command's flags.\n")
}

func groupHelp(w io.Writer, path string, group command) {
	fmt.Fprintf(w, "Usage: copilot-grpc %s COMMAND [flags]\n\nCommands, to %s:\n", path, group.summary)
	listCommands(w, group.commands)
	fmt.Fprintf(w, "\n\"copilot-grpc help %s COMMAND\" lists a command's flags.\n", path)
}

func listCommands(w io.Writer, list []command) {
	for _, c := range list {
		fmt.Fprintf(w, "  %-10s %s\n", c.name, c.summary)
	}
}

// self is how the user calls this program.
func self() string {
	path := os.Args[0]
	if !strings.Contains(filepath.ToSlash(path), "/go-build") {
		return path
	}
	// go run removes the executable afterwards.
	const built = "bin/copilot-grpc"
	if _, err := os.Stat(built); err == nil {
		return built
	}
	return "go run ./cmd/copilot-grpc"
}
