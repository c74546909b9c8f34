package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func sessionCommands() []command {
	return []command{
		{name: "list", args: "[flags]", summary: "list sessions, or watch them", help: listUsage, setup: setupList},
		{name: "show", args: "SESSION [flags]", summary: "print a session", help: showUsage, setup: setupShow,
			complete: completeSession},
		{name: "create", args: "[flags]", summary: "create a session and print its id", help: createUsage,
			setup: setupCreate},
		{name: "resume", args: "SESSION [flags]", summary: "open a disconnected or stored session", help: resumeUsage,
			setup: setupResume, complete: completeSession},
		{name: "send", args: "SESSION PROMPT [flags]", summary: "send a prompt and print its message id",
			help: sendUsage, setup: setupSend, complete: completeSession},
		{name: "abort", args: "SESSION [flags]", summary: "abort the running turn", help: abortUsage, setup: setupAbort,
			complete: completeSession},
		{name: "disconnect", args: "SESSION... [flags]", summary: "close sessions; their history stays",
			help: disconnectUsage, setup: setupDisconnect, complete: completeSession},
		{name: "delete", args: "SESSION... [flags]", summary: "delete sessions with their history", help: deleteUsage,
			setup: setupDelete, complete: completeSession},
		{name: "share", args: "SESSION [TENANT] [flags]", summary: "share a session with another tenant",
			help: shareUsage, setup: setupShare, complete: completeSession},
		{name: "export", args: "SESSION [flags]", summary: "carry a session to another server: write it to a file",
			help: exportUsage, setup: setupExport, complete: completeSession},
		{name: "import", args: "FILE [flags]", summary: "carry a session to this server: read it from a file",
			help: importUsage, setup: setupImport},
		{name: "prune", args: "--idle DURATION [flags]", summary: "delete sessions that have not been used for some time",
			help: pruneUsage, setup: setupPrune},
	}
}

const exportUsage = `Writes a session to a file, for "copilot-grpc sessions import" at another server.

  copilot-grpc sessions export SESSION --output session.tar.gz

The file has the conversation, the journal and the configuration without its secrets. The session must be at rest. Treat
the file like the conversation. With --output - the command writes to stdout.`

const importUsage = `Makes a session of a file that "copilot-grpc sessions export" wrote. FILE can be "-" for stdin.

  copilot-grpc sessions import session.tar.gz`

func setupExport(p *program, f *flags) action {
	c := p.connection(f)
	output := f.String("output", "", "`file` to write, which must not exist (default: SESSION.tar.gz)")
	_ = f.SetAnnotation("output", variableKey, []string{"export-output"}) // the flag exists
	return c.forSession(func(ctx context.Context, client *copilot.Client, id string) error {
		return p.exportSession(ctx, client, id, *output)
	})
}

func setupImport(p *program, f *flags) action {
	c := p.connection(f)
	id := f.String("id", "", "`id` of the new session (default: the id of the exported session)")
	return func(ctx context.Context, args []string) error {
		return c.with(ctx, func(client *copilot.Client) error {
			return p.importSession(ctx, client, args[0], *id)
		})
	}
}

// exportSession writes the archive of a session to a file. After an error there is no file.
func (p *program) exportSession(ctx context.Context, client *copilot.Client, id, output string) (err error) {
	if output == "-" {
		_, err := client.ExportSession(ctx, id, p.stdout)
		return err
	}
	if output == "" {
		output = id + ".tar.gz"
	}
	file, err := os.OpenFile(output, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the file %q exists: remove it, or choose another one with --output", output)
	}
	if err != nil {
		return err
	}
	header, err := client.ExportSession(ctx, id, file)
	if err = errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(output)
		return unjoined(err)
	}
	fmt.Fprintf(p.stdout, "wrote %s (%d bytes)\n", output, header.GetSizeBytes())
	p.printMissing(header.GetMissingSecrets())
	return nil
}

// unjoined returns the only error of several, so that its status is found.
func unjoined(err error) error {
	if several, ok := err.(interface{ Unwrap() []error }); ok && len(several.Unwrap()) == 1 {
		return several.Unwrap()[0]
	}
	return err
}

func (p *program) importSession(ctx context.Context, client *copilot.Client, name, id string) error {
	from := p.stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		from = io.Reader(file)
	}
	made, err := client.ImportSession(ctx, from, &bridgev1.ImportSessionHeader{SessionId: id})
	if err != nil {
		return err
	}
	newID := made.GetSession().GetSessionId()
	fmt.Fprintf(p.stdout, "imported session %s (%d events); open it with:\n", newID, made.GetEventCount())
	fmt.Fprintf(p.stdout, "  copilot-grpc sessions resume %s\n", operand(newID))
	p.printMissing(made.GetMissingSecrets())
	return nil
}

// printMissing lists the secrets that an archive does not have.
func (p *program) printMissing(paths []string) {
	if len(paths) > 0 {
		fmt.Fprintf(p.stderr, "not in the file, because they are secret: %s; ResumeSession sets them in its config\n",
			strings.Join(paths, ", "))
	}
}
