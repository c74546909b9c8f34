package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/internal/fsck"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

const fsckUsage = `Verifies the data directory of a server, or a file with the export of a session, and changes nothing. It needs no
running server.

  copilot-grpc fsck ~/.local/state/copilot-grpc
  copilot-grpc fsck DIR --json
  copilot-grpc fsck session.tar.gz

The formats are described in docs/data-directory.md and docs/session-archive.md; the verifier shares no code with the
server. What a killed server leaves, such as an unfinished write, is a note and no damage. If a server uses the
directory, fsck says so: some findings may then be writes that were not finished.

The exit code is 0 if nothing is damaged, 1 if something is, and 2 if the command line is wrong, DIR is no data
directory, or a later version has written the directory or the file.`

func setupFsck(p *program, f *flags) action {
	out := p.printer(f)
	asJSON := f.Bool("json", false, "the same as -o json")
	return func(ctx context.Context, args []string) error {
		if *asJSON {
			out.format = formatJSON
		}
		report, err := fsck.Check(ctx, args[0])
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return usageError{err}
		}
		if err := printReport(out, report); err != nil {
			return err
		}
		if report.Damage.Total > 0 {
			return errReported
		}
		return nil
	}
}

func printReport(out *printer, r *fsck.Report) error {
	if !out.forPeople() {
		return out.document(r)
	}
	rows := table{columns: []column{{head: "SESSION", least: 12}, {head: "EPOCH"}, {head: "EVENTS"}, {head: "FIRST"},
		{head: "LAST"}, {head: "MISSING", least: 12}, {head: "CLOSED"}, {head: "PROMPTS"}, {head: "DAMAGE"}, {head: "BYTES"}}}
	closed := map[bool]string{true: "yes", false: "no"}
	for _, s := range r.Sessions {
		name := s.Key
		if name == "" || strings.HasPrefix(s.Folder, "damaged/") {
			name = s.Folder
		}
		rows.add(s, name, fmt.Sprint(s.Epoch), fmt.Sprint(s.Events), fmt.Sprint(s.First), fmt.Sprint(s.Last),
			rangesText(s.Holes, s.Losses), closed[s.Closed], fmt.Sprint(s.Prompts), fmt.Sprint(s.Damage), fmt.Sprint(s.Bytes))
	}
	var lines strings.Builder
	findings(&lines, "note", r.Notes)
	findings(&lines, "DAMAGE", r.Damage)
	if r.Locked {
		lines.WriteString("A server uses the directory: it may have been writing.\n")
	}
	verdict := "clean"
	if r.Damage.Total > 0 {
		verdict = "DAMAGED"
	}
	fmt.Fprintf(&lines, "%s (sessions: %d, notes: %d, damage: %d, size: %s)\n", verdict, len(r.Sessions), r.Notes.Total,
		r.Damage.Total, sizeText(r.Bytes))
	if err := rows.print(out.out); err != nil {
		return err
	}
	_, err := io.WriteString(out.out, lines.String())
	return err
}

func findings(to *strings.Builder, kind string, l fsck.List) {
	for _, f := range l.List {
		fmt.Fprintf(to, "%s: %s\n", kind, terminal.CleanLine(f.Path+" "+f.Text))
	}
	if more := l.Total - len(l.List); more > 0 {
		fmt.Fprintf(to, "%s: %d more\n", kind, more)
	}
}

// rangesText are the ranges of events that are missing, for people: those that were found, and those that the journal
// names.
func rangesText(found, named []fsck.Range) string {
	var texts []string
	for _, r := range append(slices.Clone(found), named...) {
		texts = append(texts, fmt.Sprintf("%d-%d", r.First, r.Last))
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ",")
}
