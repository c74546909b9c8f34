package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"

	"go.opentelemetry.io/otel"

	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
	"github.com/copilot-grpc/copilot-grpc/server/redact"
)

const serveUsage = `Serves the GitHub Copilot CLI over gRPC. SIGINT or SIGTERM stops the server after a grace time; a
second signal stops it at once. Each flag can also be set in the environment or in a file
(--config). Do not give secrets as flags: other users can see them. SIGHUP reloads the file of
settings, the policy and the certificates.`

// gcPercent is how much the heap may grow between two collections, relative to what
// lives. Events are short-lived garbage beside what a session keeps: the default of 100
// collects so often that a large event costs a fifth more. GOGC overrides it.
const gcPercent = 200

func serve(ctx context.Context, p *program, args []string) error {
	if p.getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	command, err := p.serverConfig(args)
	if err != nil {
		return err
	}
	c := command.config
	if command.print {
		return errors.Join(command.loader.Print(p.stdout), command.check())
	}
	if err := command.check(); err != nil {
		return err
	}
	level, options := new(slog.LevelVar), []app.Option{app.WithProbe()}
	log := p.stderr
	if isTerminal(log) && p.getenv("TERM") != "dumb" && c.LogFormat == "text" {
		bar := &progressBar{out: log, width: terminalWidth(log)}
		log, options = bar, append(options, app.WithProgress(bar.report))
	}
	logger, err := c.NewLogger(log, level)
	if err != nil {
		return err
	}
	for name, near := range unknownVariables(p) {
		logger.Warn("no setting has this environment variable", slog.String("name", name),
			slog.String("did_you_mean", near))
	}
	outliveReaders()
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		logger.Warn("telemetry failed", slog.String("error", redact.Text(err.Error())))
	}))
	a, err := app.New(ctx, *c, append(options, app.WithLogger(logger), app.WithLevel(level))...)
	if err != nil && ctx.Err() != nil {
		logger.Info("asked to end before the server was ready", slog.Any("error", err))
		return nil
	}
	if err != nil {
		return command.sourced(err)
	}
	for _, target := range a.Targets() {
		logger.Info("listening", slog.String("address", target), slog.String("version", p.version))
	}
	if url := a.WebURL(); url != "" { // the testing module of TypeScript reads this line
		logger.Info("listening for browsers", slog.String("address", url))
	}
	if addr := a.Admin(); addr != nil {
		logger.Info("admin listener", slog.String("address", addr.String()))
	}
	if c.LogFormat == "text" {
		welcome(log, a, c.Token == "", c.TLSCert != "")
	}
	defer p.reloading(ctx, a, command, args, logger)()
	if err := p.run(ctx, a); err != nil {
		return err
	}
	logger.Info("stopped")
	return nil
}

type serveCommand struct {
	*serverCommand
	print bool
}

func (p *program) newServe() *serveCommand {
	command := &serveCommand{serverCommand: p.newServerCommand("serve", serveUsage, "info")}
	command.BoolVar(&command.print, "print-config", false,
		"print the effective settings and the source of each, without secrets, and exit")
	return command
}

// serverConfig reads the configuration of a server from everywhere.
func (p *program) serverConfig(args []string) (*serveCommand, error) {
	command := p.newServe()
	return command, command.read(p, args)
}

// run runs the app, and hastens its end at the second signal.
func (p *program) run(ctx context.Context, a *app.App) error {
	defer context.AfterFunc(p.again, a.Abort)()
	return a.Run(ctx)
}

// welcome prints the first steps. It prints a generated token.
func welcome(w io.Writer, a *app.App, generated, tls bool) {
	if generated && a.Token() != "" {
		fmt.Fprintf(w, "\nThe token of this server, valid until it ends. Type this in the terminal of the client:\n"+
			"  export COPILOT_GRPC_TOKEN=%s\n", a.Token())
	}
	if model := a.OfflineModel(); model != nil {
		// The testing modules of the client libraries read this line.
		fmt.Fprintf(w, "\nA script plays the model: %s\n", model.URL())
	}
	if link := a.WebLink(); link != "" {
		fmt.Fprintf(w, "\nTo log in with a browser, open this link within an hour, once: %s\n", link)
	}
	fmt.Fprintln(w, "\nTry:") // the client libraries wait for this line
	lines := examples(a.Target(), a.Token() != "")
	if tls && !strings.HasPrefix(a.Target(), "unix:") {
		lines = tlsExamples(a.Target())
	}
	if url := a.WebURL(); url != "" {
		lines = append(lines, webExample(url, a.Token() != ""))
	}
	for _, line := range lines {
		fmt.Fprintln(w, "  "+line)
	}
	fmt.Fprintln(w, "\nCtrl-C stops the server; its sessions stay.")
	fmt.Fprintln(w)
}

// tlsExamples are the commands to type next, for a server with TLS at that target. Only its operator knows the CA and
// the callers' proof.
func tlsExamples(target string) []string {
	return []string{
		self() + " context add NAME --target " + quote(target) + " --tls-ca CA.PEM --token-file FILE --use",
		self() + " server",
		self() + " chat",
	}
}

func webExample(url string, token bool) string {
	call := "curl "
	if token {
		call += `-H "Authorization: Bearer $COPILOT_GRPC_TOKEN" `
	}
	return call + `-H 'Content-Type: application/json' -d '{"create": {}, "prompt": {"text": "Hello"}}' ` +
		url + "/copilot.bridge.v1.SessionService/Run"
}

// examples are the commands to type next, for a server at that target.
func examples(target string, token bool) []string {
	grpcurl, here := "grpcurl -plaintext", ""
	// Not "-unix PATH": grpcurl 1.9.3 dials that as a host.
	where := quote(target)
	if token && !strings.HasPrefix(target, "unix:") {
		grpcurl += ` -H "authorization: Bearer $COPILOT_GRPC_TOKEN"`
	}
	if target != defaultSocket() {
		here = " --target " + where
	}
	return []string{
		self() + " chat" + here,
		self() + " run Hello" + here,
		grpcurl + " " + where + " list",
	}
}

// operand makes an argument of a command, which comes last on its line, of an id.
func operand(id string) string {
	word := quote(terminal.CleanLine(id))
	if strings.HasPrefix(id, "-") {
		return "-- " + word
	}
	return word
}

// quote makes a word of the shell of s.
func quote(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("/._:-+@,=", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') &&
			(r < 'A' || r > 'Z')
	}) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}
