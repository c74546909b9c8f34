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

const sessionsUsage = `Carries a session from one server to another, as a file.

  copilot-grpc sessions export SESSION [--output FILE]
  copilot-grpc sessions import FILE [--id SESSION]

export writes the conversation, the journal and the configuration without its secrets. The session must be at rest. The
file has everything that was said in the conversation: treat it like the conversation. import makes a session that
ResumeSession opens. FILE can be "-" for stdout or stdin.`

// sessionsOptions are the flags of sessions.
type sessionsOptions struct {
	target     target
	output, id string
}

// newSessions returns the command line of sessions.
func newSessions(o *sessionsOptions) *flags {
	f := newFlags("sessions", "export SESSION | import FILE [flags]", sessionsUsage)
	o.target.flags(f)
	f.StringVar(&o.output, "output", "", "export: `file` to write, which must not exist (default: SESSION.tar.gz)")
	f.StringVar(&o.id, "id", "", "import: `id` of the new session (default: the id of the exported session)")
	return f
}

// sessions is the command.
func sessions(ctx context.Context, p *program, args []string) error {
	var o sessionsOptions
	f := newSessions(&o)
	verb, subject := "", ""
	for _, to := range []*string{&verb, &subject} { // flags may follow the arguments
		if len(args) > 0 && (args[0] == "-" || !strings.HasPrefix(args[0], "-")) {
			*to, args = args[0], args[1:]
		}
	}
	if err := f.parse(p, args); err != nil {
		return err
	}
	rest := f.Args()
	if subject == "" && len(rest) > 0 {
		subject, rest = rest[0], rest[1:]
	}
	switch {
	case verb != "export" && verb != "import" || subject == "":
		return usageError{errors.New(`want "sessions export SESSION" or "sessions import FILE"`)}
	case len(rest) > 0:
		return usageError{fmt.Errorf("unexpected argument %q", rest[0])}
	case verb == "export" && o.id != "" || verb == "import" && o.output != "":
		return usageError{errors.New("--output is for export, --id for import")}
	}
	conn, err := o.target.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	client := copilot.NewClient(conn)
	defer client.Close()
	if verb == "export" {
		err = p.exportSession(ctx, client, subject, o.output)
	} else {
		err = p.importSession(ctx, client, subject, o.id)
	}
	if err != nil {
		return p.failed(err, &o.target)
	}
	return nil
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

// importSession makes a session of a file.
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
	fmt.Fprintf(p.stdout, "  copilot-grpc call SessionService/ResumeSession '{\"sessionId\":%q}'\n", newID)
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
