// Package cli is the command line of copilot-grpc.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	// exitInterrupted is what a shell gives a program that a second signal ended.
	exitInterrupted = 130
)

// program is one run of the command, with all that it touches of the world.
type program struct {
	version string
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
	getenv  func(string) string
	// environ lists the environment, as [os.Environ] does.
	environ func() []string
	// again tells of the second signal, after the first has ended the context.
	again <-chan struct{}
	// processors sets how many processors the goroutines of this process use.
	processors func(n int)
}

// command is one of the program's commands.
type command struct {
	name    string
	args    string
	summary string
	flags   func(p *program) *flags
	run     func(ctx context.Context, p *program, args []string) error
}

// commands are all there are, in the order in which help lists them.
func commands() []command {
	return []command{
		{"serve", "[flags]", "serve the Copilot CLI over gRPC", func(p *program) *flags { return p.newServe().flags },
			serve},
		{"demo", "[flags]", "run a short demonstration",
			func(*program) *flags { return newDemo(new(app.Config)) }, showDemo},
		{"doctor", "[flags]", "report what is missing and how to fix it",
			func(*program) *flags { f, _ := newDoctor(); return f.flags }, doctor},
		{"shim", "[flags]", "replace the copilot executable for programs of the official SDKs",
			func(*program) *flags { return newShim(new(shimOptions)) }, shimCommand},
		{"call", "[flags] [METHOD [REQUEST]]", "make one call, without grpcurl",
			func(*program) *flags { return newCall(&target{}) }, call},
		{"sessions", "export SESSION | import FILE [flags]", "carry a session to another server as a file",
			func(*program) *flags { return newSessions(new(sessionsOptions)) }, sessions},
		{"prune", "--idle DURATION [flags]", "delete sessions that have not been used for some time",
			func(*program) *flags { return newPrune(new(pruneOptions)) }, prune},
		{"web", "link [flags]", "print a link by which a browser logs in",
			func(*program) *flags { return newWeb(new(webOptions)) }, web},
		{"issuer", "[flags]", "run an OpenID Connect issuer to try out policies",
			func(*program) *flags { f, _ := newIssuer(); return f }, issuer},
		{"version", "", "print the version of this program and the supported CLI versions",
			func(*program) *flags { return newVersion() }, printVersion},
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
	p := &program{
		version: version, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, environ: os.Environ,
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

// signals ends the context at the first signal that asks the program to end, and tells
// of the second.
func signals() (ctx context.Context, again <-chan struct{}, release func()) {
	ctx, cancel := context.WithCancel(context.Background())
	second, over := make(chan struct{}), make(chan struct{})
	received := make(chan os.Signal, 2)
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	go func() {
		for _, tell := range []func(){cancel, func() { close(second) }} {
			select {
			case <-received:
				tell()
			case <-over:
				return
			}
		}
	}()
	return ctx, second, func() {
		signal.Stop(received)
		close(over)
		cancel()
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
			p.help(p.stdout)
			return exitOK
		}
		name, args = args[0], []string{"--help"}
	case "-version", "--version":
		name = "version"
	}
	root := p.root(strings.HasPrefix(name, cobra.ShellCompRequestCmd))
	root.SetArgs(append([]string{name}, args...))
	done, err := root.ExecuteContextC(ctx)
	return p.exit(done, err)
}

// exit reports a command's error and turns it into an exit code.
func (p *program) exit(of *cobra.Command, err error) int {
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
	select {
	case <-p.again:
		return exitInterrupted
	default:
		return exitFailed
	}
}

func (p *program) help(w io.Writer) {
	fmt.Fprint(w, "copilot-grpc serves the GitHub Copilot CLI over gRPC.\n\nUsage: copilot-grpc COMMAND "+
		"[flags]\n\nCommands:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-10s %s\n", c.name, c.summary)
	}
	fmt.Fprintf(w, "  %-10s %s\n", "completion", "print a shell completion script")
	fmt.Fprint(w, "\n\"copilot-grpc help COMMAND\" lists a command's flags.\n")
}

// self is how the user calls this program.
func self() string {
	path := os.Args[0]
	if !strings.Contains(filepath.ToSlash(path), "/go-build") {
		return path
	}
	// go run removes the executable afterwards.
	if built := "bin/copilot-grpc"; exists(built) {
		return built
	}
	return "go run ./cmd/copilot-grpc"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
