package fakecli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// stdio is a process's standard input and output as one stream.
type stdio struct {
	io.Reader
	io.Writer
	closers []io.Closer
}

func (s stdio) Close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// flags are the flags of the real command line that matter here.
type flags struct {
	stdio, headless, version bool
	port                     int
	host                     string
}

func parseFlags(args []string, stderr io.Writer) (f flags, err error) {
	set := flag.NewFlagSet("fakecopilot", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.BoolVar(&f.headless, "headless", false, "serve JSON-RPC")
	set.BoolVar(&f.stdio, "stdio", false, "serve on standard input and output")
	set.IntVar(&f.port, "port", 0, "serve on this loopback port; 0 takes a free one")
	set.StringVar(&f.host, "host", "127.0.0.1", "address to listen on")
	set.BoolVar(&f.version, "version", false, "print the version")
	for _, ignored := range []string{"no-auto-update", "no-auto-login"} {
		set.Bool(ignored, false, "accepted and ignored")
	}
	for _, ignored := range []string{"auth-token-env", "session-idle-timeout", "log-level", "log-dir"} {
		set.String(ignored, "", "accepted and ignored")
	}
	return f, set.Parse(args)
}

// Main is the executable: it returns the exit code.
func Main(args []string, getenv func(string) string, stdin, stdout *os.File, stderr io.Writer) int {
	f, err := parseFlags(args, stderr)
	if err != nil {
		return 1
	}
	script, err := LoadScript(getenv("FAKECOPILOT_SCRIPT"))
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 1
	}
	if script.Version == "" {
		script.Version = DefaultVersion
	}
	if f.version {
		_, _ = fmt.Fprintf(stdout, "GitHub Copilot CLI %s.\n", script.Version)
		return 0
	}
	time.Sleep(time.Duration(script.Start.DelayMS) * time.Millisecond)
	_, _ = io.WriteString(stderr, script.Start.Stderr)
	if script.Start.Crash {
		return script.Start.ExitCode
	}
	o := Options{Script: script, Home: getenv("COPILOT_HOME"), Token: getenv("COPILOT_CONNECTION_TOKEN")}
	if path := getenv("FAKECOPILOT_ORACLE"); path != "" {
		log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			_, _ = fmt.Fprintln(stderr, err)
			return 1
		}
		defer log.Close()
		o.Oracle = log
	}
	o.Exit = os.Exit // at once, as a crash is
	cli := New(o)
	cli.oracle.keep = false // nobody can ask a process for it
	stop := endOnSignal(cli)
	defer stop()
	if f.stdio {
		cli.Serve(stdio{stdin, stdout, []io.Closer{stdin, stdout}}, false)
		cli.Shutdown()
		return 0
	}
	return listen(cli, f, stdout, stderr)
}

// endOnSignal ends the process the clean way on the signals the real one ends
// on.
func endOnSignal(cli *CLI) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-signals:
			cli.Shutdown()
		case <-done:
		}
	})
	return func() {
		signal.Stop(signals)
		close(done)
		watch.Wait()
	}
}

// listen is the TCP form; like the real one it does not end with its
// connections or its input.
func listen(cli *CLI, f flags, stdout, stderr io.Writer) int {
	l, err := net.Listen("tcp", net.JoinHostPort(f.host, fmt.Sprint(f.port)))
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "Failed to start server: %v\n", err)
		return 1
	}
	_, _ = fmt.Fprintf(stdout, "CLI server listening on port %d\n", l.Addr().(*net.TCPAddr).Port)
	if cli.opts.Token == "" {
		_, _ = fmt.Fprintln(stdout, "Warning: No COPILOT_CONNECTION_TOKEN was set, so connections will be accepted "+
			"from any client")
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			_, _ = fmt.Fprintln(stderr, err)
			return 1
		}
		cli.tasks.Go(func() { cli.Serve(conn, true) })
	}
}
