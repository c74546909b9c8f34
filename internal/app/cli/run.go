package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/clients/go/view"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

const runUsage = `Sends one prompt, prints the agent's text to stdout and its progress to stderr, and ends with the
turn. PROMPT can be "-" for stdin.

  copilot-grpc run 'What does this repository do?' --dir ~/work/shop
  git diff | copilot-grpc run - --approve reads --timeout 10m
  copilot-grpc run 'Commit this.' --allow-tool 'shell(git add),shell(git commit),write'
  copilot-grpc run 'And the tests?' --session SESSION

Without --session the prompt begins a new session, which is disconnected at the end; --session continues it. -o json
prints one document with the outcome and the usage, -o jsonl the events as of "copilot-grpc events -o json" and the
outcome.

--approve decides what the agent may do:
  none   nothing that needs permission (the default where no person is at a terminal)
  reads  reading files
  all    everything: for sandboxes
  ask    what the person at the terminal approves (the default at a terminal)

--allow-tool approves the tools and commands that it names, and leaves the rest to --approve. The rules are those of the
Copilot CLI's own --allow-tool:
  shell              all commands
  shell(COMMAND)     a command by its name (of git, gh and the like with the subcommand: 'shell(git push)'), or a line
                     as it is; 'shell(git:*)' is git with all subcommands
  write, write(FILE) files: all, one by its path, or those whose path ends with FILE; read(FILE) likewise
  url, url(HOST)     addresses: all, or those of a host, such as x.org (with https), http://x.org or *.x.org
  SERVER, SERVER(TOOL), TOOL
                     tools of an MCP server, and tools that a program has given the session
A line of several commands needs a rule for each. shell(COMMAND) allows no line that also assigns variables, writes to a
file by > or substitutes commands. No rule allows what leaves the sandbox.

Exit codes: 0 the turn completed, 2 the command line is wrong, 3 the agent was refused a permission or the server
refused the caller, 4 the turn failed, 5 --timeout passed, 6 no server answers, 130 the turn was aborted, also by
Ctrl-C. After 5 and Ctrl-C the turn is aborted. A server that goes away during the turn is waited for up to 2 minutes.`

// Exit codes of "run", beside those of all commands.
const (
	exitRefused    exitError = 3
	exitTurnFailed exitError = 4
	exitTimedOut   exitError = 5
	exitAborted    exitError = exitInterrupted
)

const (
	approveNone  = "none"
	approveReads = "reads"
	approveAll   = "all"
	approveAsk   = "ask"
)

type runOptions struct {
	program    *program
	connection *connection
	out        *printer
	created    newSession
	session    string
	approve    string
	allowed    toolRules
	timeout    time.Duration
	files      list

	// abortFailed is why the turn could not be aborted; nil if it was, or did not have to be.
	abortFailed error
	// refused says that a permission was refused.
	refused atomic.Bool
	// asking is held while the person at the terminal is asked, one thing at a time.
	asking sync.Mutex
	// answers are the lines of the terminal.
	answers <-chan terminal.Line
}

func setupRun(p *program, f *flags) action { return newRun(p, f).start }

func newRun(p *program, f *flags) *runOptions {
	o := &runOptions{program: p, connection: p.connection(f), out: p.printer(f)}
	o.created.flags(f)
	f.StringVar(&o.session, "session", "", "continue the session with this `id`")
	f.Var(&choice{&o.approve, []string{approveNone, approveReads, approveAll, approveAsk}}, "approve",
		"`permissions` that the agent gets: none, reads, all, ask (default: ask at a terminal, else none)")
	f.Var(&o.allowed, "allow-tool", "`rules` of what the agent may do without asking, such as 'shell(git:*)' or write; "+
		"repeatable, or with commas")
	f.DurationVar(&o.timeout, "timeout", 0, "abort the turn after this `duration`, such as 10m; 0 is never")
	f.Var(&o.files, "file", "attach this `file`; repeatable")
	return o
}

func (o *runOptions) start(ctx context.Context, args []string) error {
	if err := o.check(args[0]); err != nil {
		return err
	}
	prompt, err := o.program.prompt(args[0])
	if err != nil {
		return err
	}
	return o.run(ctx, prompt)
}

func (o *runOptions) check(prompt string) error {
	if n := o.created; o.session != "" && (n.model != "" || n.dir != "" || n.provider != "" || n.labels.set != nil) {
		return usageError{errors.New("--model, --dir, --provider-ref and --label are for new sessions, not for --session")}
	}
	if o.timeout < 0 {
		return usageError{errors.New("--timeout is negative")}
	}
	if err := checkFiles(o.files); err != nil {
		return err
	}
	person := prompt != "-" && isTerminal(o.program.stdin) && isTerminal(o.program.stderr)
	switch {
	case o.approve == "" && person:
		o.approve = approveAsk
	case o.approve == "":
		o.approve = approveNone
	case o.approve == approveAsk && !person:
		return usageError{errors.New("--approve ask needs a terminal on stdin and stderr")}
	}
	return nil
}

// errTimeout is the cause of a context that --timeout has ended.
var errTimeout = errors.New("timed out")

// run has the turn.
func (o *runOptions) run(parent context.Context, prompt string) error {
	ctx := parent
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(parent, o.timeout, errTimeout)
		defer cancel()
	}
	client, err := o.connection.dial(ctx)
	if err != nil {
		return o.failed(ctx, err)
	}
	defer client.Close()
	session, err := o.open(ctx, client)
	awaitDeadline(ctx, err)
	if err != nil {
		return o.failed(ctx, o.connection.failed(ctx, client, err))
	}
	defer session.Close()
	fmt.Fprintf(o.program.stderr, "session %s\n", session.ID())
	outcome, usage, err := o.turn(ctx, session, prompt)
	awaitDeadline(ctx, err)
	if ctx.Err() != nil {
		o.abort(session)
	}
	if err != nil {
		failed := o.failed(ctx, o.connection.failed(ctx, client, err))
		o.lost(ctx, session, err)
		return failed
	}
	return o.finish(session, outcome, usage)
}

// awaitDeadline waits for the end of a context whose deadline the server, which knows it too, has noticed first.
func awaitDeadline(ctx context.Context, err error) {
	const most = time.Second // otherwise it is a deadline of the server's own
	var failure *copilot.Error
	deadline, ok := ctx.Deadline()
	if ok && time.Until(deadline) < most && errors.As(copilot.FromError(err), &failure) &&
		failure.Code == codes.DeadlineExceeded {
		<-ctx.Done()
	}
}

// open opens the session of the turn.
func (o *runOptions) open(ctx context.Context, client *copilot.Client) (*copilot.Session, error) {
	participant := copilot.SessionOptions{Name: clientName, OnPermission: o.decide}
	if o.session == "" {
		participant.Config, participant.ProviderRef = o.created.config(), o.created.provider
		participant.Labels, participant.Lifetime = o.created.labels.set, copilot.LifetimeEndWithLastParticipant
		return client.CreateSession(ctx, participant)
	}
	o.connection.session = o.session
	session, err := client.JoinSession(ctx, o.session, participant)
	if copilot.IsReason(err, copilot.ReasonSessionNotFound) { // it may be disconnected
		resumed, failure := client.ResumeSession(ctx, o.session, participant)
		if !copilot.IsReason(failure, copilot.ReasonSessionNotFound) { // else the first error is the clearer one
			return resumed, failure
		}
	}
	return session, err
}

// turn sends the prompt and prints the turn.
func (o *runOptions) turn(
	ctx context.Context, session *copilot.Session, prompt string,
) (*copilot.Outcome, view.Usage, error) {
	var opts []copilot.SendOption
	for _, path := range o.files {
		opts = append(opts, copilot.AttachFile(path))
	}
	turn := session.Run(ctx, prompt, opts...)
	var state view.View
	printed := &turnPrinter{progress: o.program.stderr, events: eventPrinter{out: o.out, textOnly: true}, prompt: prompt,
		messageID: turn.MessageID}
	for event, err := range turn.Events() {
		var gap *copilot.GapError
		switch {
		case errors.As(err, &gap):
			fmt.Fprintln(o.program.stderr, gap)
			continue
		case err != nil:
			return nil, state.Usage, errors.Join(err, o.out.out.endLine())
		}
		if !printed.begins(event) { // it is of an earlier turn
			continue
		}
		state = view.Reduce(state, &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Events{
			Events: &bridgev1.EventBatch{Events: []*bridgev1.Event{event}},
		}})
		if err := printed.event(event); err != nil {
			return nil, state.Usage, err
		}
	}
	outcome, err := turn.Outcome()
	return outcome, state.Usage, errors.Join(err, o.out.out.endLine())
}

// abortTime bounds the abort of a turn whose time is over.
const abortTime = 5 * time.Second

// abort aborts the turn, or notes why it could not.
func (o *runOptions) abort(session *copilot.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), abortTime)
	defer cancel()
	if _, err := session.Abort(ctx); err != nil {
		o.abortFailed = err
		o.connection.notices.mute() // the session will not be left either
	}
}

// lost says what is known of a turn whose server went away and did not come back.
func (o *runOptions) lost(ctx context.Context, session *copilot.Session, err error) {
	var failure *copilot.Error
	if ctx.Err() != nil || !errors.As(copilot.FromError(err), &failure) || failure.Code != codes.Unavailable ||
		len(failure.GRPCStatus().Details()) > 0 { // the server's own
		return
	}
	fmt.Fprintf(o.program.stderr, "the outcome of the turn is unknown: see \"copilot-grpc events %s\" when the server "+
		"answers again\n", operand(session.ID()))
	o.connection.notices.mute() // the session cannot be left
}

// failed is the exit code of a run that has no outcome.
func (o *runOptions) failed(ctx context.Context, err error) error {
	var failure *copilot.Error
	switch {
	case errors.As(err, new(usageError)), errors.As(err, new(outputError)):
		return err
	case errors.Is(context.Cause(ctx), errTimeout) && o.abortFailed != nil:
		fmt.Fprintf(o.program.stderr, "%s have passed; the turn may still be running: %s\n", o.timeout,
			terminal.CleanLine(o.abortFailed.Error()))
		return exitTimedOut
	case errors.Is(context.Cause(ctx), errTimeout):
		fmt.Fprintf(o.program.stderr, "the turn was aborted after %s\n", o.timeout)
		return exitTimedOut
	case ctx.Err() != nil && o.abortFailed != nil:
		fmt.Fprintf(o.program.stderr, "the turn may still be running: %s\n", terminal.CleanLine(o.abortFailed.Error()))
		return exitAborted
	case ctx.Err() != nil:
		fmt.Fprintln(o.program.stderr, "the turn was aborted")
		return exitAborted
	case !errors.Is(err, errReported):
		fmt.Fprintf(o.program.stderr, "copilot-grpc run: %s\n", terminal.CleanLine(err.Error()))
	}
	switch {
	case isNoServer(err):
		return exitError(exitNoServer)
	case errors.As(err, &failure) && (failure.Code == codes.PermissionDenied || failure.Code == codes.Unauthenticated):
		return exitRefused
	}
	return exitTurnFailed
}

// runResult is what "run" prints as JSON.
type runResult struct {
	SessionID string             `json:"sessionId"`
	MessageID string             `json:"messageId,omitempty"`
	Status    copilot.TurnStatus `json:"status"`
	Refused   bool               `json:"refused"`
	Text      string             `json:"text"`
	Error     string             `json:"error,omitempty"`
	Usage     runUsageResult     `json:"usage"`
}

type runUsageResult struct {
	Requests     int     `json:"requests"`
	InputTokens  int64   `json:"inputTokens"`
	OutputTokens int64   `json:"outputTokens"`
	Cost         float64 `json:"cost"`
}

// finish prints the outcome, and returns the exit code.
func (o *runOptions) finish(session *copilot.Session, outcome *copilot.Outcome, usage view.Usage) error {
	result := runResult{
		SessionID: session.ID(), MessageID: outcome.MessageID, Status: outcome.Status(), Refused: o.refused.Load(),
		Text: outcome.Text(), Error: outcome.Error().GetMessage(),
		Usage: runUsageResult{usage.Requests, usage.InputTokens, usage.OutputTokens, usage.Cost},
	}
	var err error
	switch o.out.format {
	case formatJSON:
		err = o.out.document(result)
	case formatLines:
		err = o.out.line(map[string]any{"outcome": result})
	}
	if err != nil {
		return err
	}
	switch {
	case result.Status == copilot.TurnCompleted && result.Refused:
		fmt.Fprintln(o.program.stderr, "the turn completed, and the agent was refused a permission (--approve, --allow-tool)")
		return exitRefused
	case result.Status == copilot.TurnCompleted:
		return nil
	}
	fmt.Fprintln(o.program.stderr, terminal.CleanLine(outcome.Err().Error()))
	switch result.Status {
	case copilot.TurnAborted:
		return exitAborted
	case copilot.TurnTimedOut:
		return exitTimedOut
	}
	return exitTurnFailed
}

func (o *runOptions) decide(ctx context.Context, req *copilot.PermissionRequest) (*copilot.Decision, error) {
	switch {
	case o.approve == approveAll, o.approve == approveReads && req.Kind == "read",
		o.allowed.allow(req.Data.GetPermissionRequest()):
		return copilot.ApproveOnce(), nil
	case o.approve == approveAsk:
		return o.ask(ctx, req)
	}
	fmt.Fprintf(o.program.stderr, "refused: %s\n", terminal.CleanLine(permissionText(req.Data.GetPermissionRequest())))
	o.refused.Store(true)
	return copilot.Reject("No person is there to approve this, and this run does not allow it."), nil
}

func (o *runOptions) ask(ctx context.Context, req *copilot.PermissionRequest) (*copilot.Decision, error) {
	o.asking.Lock()
	defer o.asking.Unlock()
	if o.answers == nil {
		o.answers = terminal.Lines(context.WithoutCancel(ctx), o.program.stdin)
	}
	fmt.Fprintf(o.program.stderr, "\nThe agent wants to %s\n[y]es, yes for the [s]ession, or [N]o? ",
		terminal.CleanLine(permissionText(req.Data.GetPermissionRequest())))
	select {
	case <-ctx.Done():
		fmt.Fprintln(o.program.stderr, "(no longer asked)")
		return nil, copilot.ErrAbstain
	case line := <-o.answers: // without text at the end of the input, and for a line that is too long
		switch strings.ToLower(strings.TrimSpace(line.Text)) {
		case "y", "yes":
			return copilot.ApproveOnce(), nil
		case "s", "session":
			return copilot.ApproveForSession(), nil
		}
	}
	o.refused.Store(true)
	return copilot.Reject("The user said no."), nil
}

// turnPrinter prints a turn: the agent's text, or its events as JSON lines, and the progress.
type turnPrinter struct {
	progress io.Writer
	events   eventPrinter
	// prompt is the text of the message that begins the turn, messageID its id; begun says that it has come.
	prompt    string
	messageID func() string
	begun     bool
}

// begins reports whether the turn has begun, with this event or before. CLIs before 1.0.83 do not say which message a
// user.message event has: what it says tells then.
func (t *turnPrinter) begins(event *bridgev1.Event) bool {
	if message := event.GetEvent().GetUserMessage(); message != nil && event.GetEvent().GetAgentId() == "" {
		id := message.GetMessageId()
		t.begun = t.begun || id == "" && strings.Contains(message.GetContent(), t.prompt) || id != "" && id == t.messageID()
	}
	return t.begun
}

func (t *turnPrinter) event(event *bridgev1.Event) error {
	if start := event.GetEvent().GetToolExecutionStart(); start != nil {
		line := "tool " + start.GetToolName() + " " + start.GetArgumentsJson()
		fmt.Fprintln(t.progress, cut(terminal.CleanLine(line), terminalWidth(t.progress)))
	}
	switch {
	case t.events.out.format == formatLines:
		return t.events.event(event)
	case t.events.out.format == formatJSON || event.GetEvent().GetAgentId() != "":
		return nil
	}
	_, err := t.events.message(time.Time{}, event.GetEvent())
	return err
}
