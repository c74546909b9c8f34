package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

const listUsage = `Lists the sessions of the server, last used first.

  copilot-grpc sessions list --label team=payments --state running
  copilot-grpc sessions list --watch
  copilot-grpc sessions list -o jsonl

AGE is the time since the session was created, TOKENS what its requests and replies have had; OWNER is there if another
tenant has shared a session. STATE is loaded, running (loaded, with a turn), unloaded, disconnected,
credentials_needed, stored or damaged; the API's SessionState explains them. --watch prints the open sessions, then a
line for each change, until Ctrl-C; with JSON a document a line, as of WatchSessions.`

// stateRunning is the state of a loaded session that has a turn.
const stateRunning = "running"

var sessionStates = []string{
	string(copilot.StateLoaded), stateRunning, string(copilot.StateUnloaded), string(copilot.StateDisconnected),
	string(copilot.StateCredentialsNeeded), string(copilot.StateStored), string(copilot.StateDamaged),
}

type listOptions struct {
	connection *connection
	out        *printer
	labels     labels
	states     choices
	dir        string
	history    bool
	watch      bool
}

func setupList(p *program, f *flags) action {
	o := listOptions{connection: p.connection(f), out: p.printer(f)}
	o.states.of = sessionStates
	f.Var(&o.labels, "label", "only sessions with this label, as `KEY=VALUE`; repeatable")
	f.Var(&o.states, "state", "only sessions in this `state`; repeatable, or with commas")
	f.StringVar(&o.dir, "dir", "", "only sessions with this working `directory`, on the server's machine")
	f.BoolVar(&o.history, "history", false, "also sessions of the CLI's history that were never opened through the server")
	f.BoolVarP(&o.watch, "watch", "w", false, "print changes as they happen")
	return func(ctx context.Context, _ []string) error {
		if o.watch && o.history {
			return usageError{errors.New("--watch shows open sessions, --history the others: choose one")}
		}
		return o.connection.with(ctx, func(client *copilot.Client) error {
			if o.watch {
				return interrupted(ctx, o.follow(ctx, client))
			}
			return o.list(ctx, client)
		})
	}
}

// interrupted is the error of a command that the user ends when it has shown enough.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (o *listOptions) filter() *copilot.SessionFilter {
	return &copilot.SessionFilter{WorkingDirectory: o.dir, Labels: o.labels.set}
}

// has reports whether a session is in one of the states that were asked for.
func (o *listOptions) has(s *copilot.SessionInfo) bool {
	state := stateOf(s)
	return len(o.states.chosen) == 0 || slices.Contains(o.states.chosen, state) ||
		state == stateRunning && slices.Contains(o.states.chosen, string(copilot.StateLoaded))
}

// stateOf is a session's state for people.
func stateOf(s *copilot.SessionInfo) string {
	switch {
	case s.Proto.GetState() == 0: // only its id is known
		return ""
	case s.State == copilot.StateLoaded && s.Proto.GetTurnRunning():
		return stateRunning
	}
	return string(s.State)
}

func (o *listOptions) list(ctx context.Context, client *copilot.Client) error {
	var found []*copilot.SessionInfo
	for s, err := range client.ListSessions(ctx, copilot.ListOptions{Filter: o.filter(), IncludeHistory: o.history}) {
		if err != nil {
			return err
		}
		if o.has(s) {
			found = append(found, s)
		}
	}
	var used map[string]int64
	if o.out.forPeople() && len(found) > 0 {
		var err error
		if used, err = tokens(ctx, client, o.filter()); err != nil {
			return err
		}
	}
	return o.out.print(o.table(found, used, time.Now()))
}

// table are sessions for people, with the tokens that each has used. It has the owners if another tenant owns one.
func (o *listOptions) table(found []*copilot.SessionInfo, used map[string]int64, now time.Time) table {
	rows := table{columns: []column{{head: "ID"}, {head: "STATE"}, {head: "AGE"}, {head: "TITLE", least: 10},
		{head: "MODEL", least: 6}, {head: "DIRECTORY", least: 8}, {head: "TOKENS"}}}
	owned := slices.ContainsFunc(found, func(s *copilot.SessionInfo) bool { return s.Proto.GetOwner() != "" })
	if owned {
		rows.columns = append(rows.columns, column{head: "OWNER"})
	}
	for _, s := range found {
		cells := append(o.cells(s, now), countText(used[s.ID]))
		if owned {
			cells = append(cells, s.Proto.GetOwner())
		}
		rows.add(s.Proto, cells...)
	}
	return rows
}

// tokens are the tokens, of requests and replies, that sessions have used, by their ids.
func tokens(ctx context.Context, client *copilot.Client, filter *copilot.SessionFilter) (map[string]int64, error) {
	rows, err := client.Usage(ctx, copilot.UsageOptions{By: []copilot.UsageGroup{copilot.UsageBySession}, Filter: filter})
	used := map[string]int64{}
	for _, row := range rows {
		used[row.GetSessionId()] = row.GetInputTokens() + row.GetOutputTokens()
	}
	return used, err
}

// countText is a number for people; empty for 0.
func countText(n int64) string {
	switch {
	case n == 0:
		return ""
	case n < 10_000:
		return strconv.FormatInt(n, 10)
	case n < 10_000_000:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprintf("%dM", n/1_000_000)
}

func (*listOptions) cells(s *copilot.SessionInfo, now time.Time) []string {
	return []string{s.ID, stateOf(s), age(s.Proto.GetCreateTime(), now), s.Title, s.Model,
		s.Proto.GetContext().GetWorkingDirectory()}
}

func (o *listOptions) follow(ctx context.Context, client *copilot.Client) error {
	rows := table{columns: []column{{width: 8}, {width: 12}, {width: 36}, {width: 12}, {width: 4}, {width: 30, least: 10},
		{width: 20, least: 6}, {width: 40, least: 8}}}
	rows.fit(terminalWidth(o.out.out))
	if o.out.forPeople() {
		heads := []string{"TIME", "CHANGE", "ID", "STATE", "AGE", "TITLE", "MODEL", "DIRECTORY"}
		if _, err := io.WriteString(o.out.out, rows.line(heads, terminalWidth(o.out.out))); err != nil {
			return err
		}
	}
	printed := map[string]bool{}
	for change, err := range client.WatchSessions(ctx, o.filter()) {
		if err != nil {
			return err
		}
		// A session that has gone, or left the states that were asked for, is reported once.
		fits := change.Session.Proto.GetState() != 0 && o.has(change.Session)
		if !fits && !printed[change.Session.ID] {
			continue
		}
		printed[change.Session.ID] = fits
		if err := o.change(change, &rows); err != nil {
			return err
		}
	}
	return nil
}

func (o *listOptions) change(change *copilot.SessionChange, rows *table) error {
	if !o.out.forPeople() {
		return o.out.line(change.Proto)
	}
	now := time.Now()
	cells := append([]string{now.Format(time.TimeOnly), string(change.Kind)}, o.cells(change.Session, now)...)
	for i, cell := range cells {
		cells[i] = terminal.CleanLine(cell)
	}
	_, err := io.WriteString(o.out.out, rows.line(cells, terminalWidth(o.out.out)))
	return err
}

// age is the time since then, in its largest unit. Clocks that differ are no reason for a negative one.
func age(since *timestamppb.Timestamp, now time.Time) string {
	if since == nil {
		return ""
	}
	switch d := max(0, now.Sub(since.AsTime())); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

const showUsage = `Prints what the server knows of a session; with -o json everything.

  copilot-grpc sessions show SESSION`

func setupShow(p *program, f *flags) action {
	c := p.connection(f)
	out := p.printer(f)
	return c.forSession(func(ctx context.Context, client *copilot.Client, id string) error {
		s, err := client.GetSession(ctx, id)
		if err != nil {
			return err
		}
		return out.record(sessionFields(s), s.Proto)
	})
}

func sessionFields(s *copilot.SessionInfo) []field {
	m := s.Proto
	var participants, shares, labels []string
	for _, one := range m.GetParticipants() {
		participants = append(participants, cmp.Or(one.GetName(), one.GetParticipantId()))
	}
	for _, one := range m.GetShares() {
		shares = append(shares, fmt.Sprintf("%s (%s, %s)", one.GetTenant(), enumText(one.GetAccess(), "SHARE_ACCESS_"),
			enumText(one.GetState(), "SHARE_STATE_")))
	}
	for key, value := range m.GetLabels() {
		labels = append(labels, key+"="+value)
	}
	slices.Sort(labels)
	return []field{
		{"id", s.ID}, {"state", stateOf(s)}, {"title", s.Title}, {"model", s.Model},
		{"created", timeText(m.GetCreateTime())}, {"last used", timeText(m.GetUpdateTime())},
		{"directory", m.GetContext().GetWorkingDirectory()}, {"repository", m.GetContext().GetRepository()},
		{"branch", m.GetContext().GetBranch()}, {"labels", strings.Join(labels, ", ")},
		{"participants", strings.Join(participants, ", ")}, {"owner", m.GetOwner()},
		{"shared with", strings.Join(shares, ", ")}, {"position", copilot.FormatPosition(m.GetPosition())},
		{"created by", m.GetClientName()}, {"CLI version", m.GetCliVersion()},
		{"storage problem", m.GetStorageProblem()}, {"damage", m.GetDamage().GetReason()},
	}
}

// timeText is a time for people; empty for none.
func timeText(at *timestamppb.Timestamp) string {
	if at == nil {
		return ""
	}
	return at.AsTime().Local().Format(time.DateTime)
}

// completionTime bounds how long a shell waits for the server.
const completionTime = 2 * time.Second

// completeFrom asks the server what a shell may offer. Without a server there is nothing to offer.
func (p *program) completeFrom(ctx context.Context, f *flags, ask func(context.Context, *copilot.Client) error) {
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	quiet := *p
	quiet.stderr = io.Discard // a shell would show it
	c := &connection{program: &quiet, set: f, notices: &notices{out: io.Discard}}
	c.target, c.context, c.token = f.Lookup("target").Value.String(), f.Lookup("context").Value.String(),
		f.Lookup("token").Value.String()
	_ = c.with(ctx, func(client *copilot.Client) error { return ask(ctx, client) })
}

func completeSession(ctx context.Context, p *program, f *flags, args []string, _ string) []cobra.Completion {
	if len(args) > 0 {
		return nil
	}
	var ids []cobra.Completion
	p.completeFrom(ctx, f, func(ctx context.Context, client *copilot.Client) error {
		for s, err := range client.ListSessions(ctx, copilot.ListOptions{}) {
			if err != nil || len(ids) == maxNear {
				return err
			}
			ids = append(ids, cobra.CompletionWithDesc(s.ID, terminal.CleanLine(cmp.Or(s.Title, stateOf(s)))))
		}
		return nil
	})
	return ids
}
