package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app/ask"
	"github.com/copilot-grpc/copilot-grpc/internal/app/inbox"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

const inboxUsage = `Shows what waits for a person in all sessions, and answers it.

  copilot-grpc inbox                                    live: shows each question as it comes up
  copilot-grpc inbox list [--session ID] [-o jsonl]     a line, or a JSON document on a line, for each question
  copilot-grpc inbox answer ID --approve                approve it once
  copilot-grpc inbox answer ID --approve-for-session    and equal requests for the rest of the session
  copilot-grpc inbox answer ID --deny [--feedback TEXT] refuse it; without a feedback the turn ends
  copilot-grpc inbox answer ID --answer TEXT            answer a question, by its text or the number of a choice

While the live inbox runs, questions wait for it in sessions in which no program answers them. In the live inbox, type an
answer, or "NUMBER: ANSWER" if several questions wait; Ctrl-C leaves.`

type inboxOptions struct {
	connection               *connection
	out                      *printer
	session                  string
	approve, forSession      bool
	deny                     bool
	feedback, answer         string
	hasFeedback, answerGiven bool
}

func setupInbox(p *program, f *flags) action {
	o := inboxOptions{connection: p.connection(f), out: p.printer(f)}
	f.StringVar(&o.session, "session", "", "list, answer: only the session with this `id`; answer needs it if several have a callback of that ID")
	f.BoolVar(&o.approve, "approve", false, "answer: approve once")
	f.BoolVar(&o.forSession, "approve-for-session", false, "answer: approve for the rest of the session")
	f.BoolVar(&o.deny, "deny", false, "answer: refuse")
	f.StringVar(&o.feedback, "feedback", "", "answer --deny: `text` for the agent")
	f.StringVar(&o.answer, "answer", "", "answer: `text`, a number of a choice, or NAME=VALUE; NAME=VALUE for a form")
	return func(ctx context.Context, args []string) error {
		verb, id := "", ""
		if len(args) > 0 {
			verb, args = args[0], args[1:]
		}
		if verb == "answer" && len(args) > 0 {
			id, args = args[0], args[1:]
		}
		if len(args) > 0 {
			return usageError{fmt.Errorf("unexpected argument %q", args[0])}
		}
		o.hasFeedback, o.answerGiven = f.isSet(p, "feedback"), f.isSet(p, "answer")
		reply, err := o.check(verb, id)
		if err != nil {
			return usageError{err}
		}
		o.connection.session = o.session
		return o.connection.with(ctx, func(client *copilot.Client) error {
			switch verb {
			case "list":
				return o.list(p, o.pending(ctx, client))
			case "answer":
				return p.answerInbox(ctx, client, o.pending(ctx, client), id, reply)
			}
			return inbox.Run(ctx, client, p.stdin, p.stdout)
		}, copilot.WithName(personName()))
	}
}

// check checks that the flags fit the verb and each other, and returns the decision.
func (o *inboxOptions) check(verb, id string) (ask.Reply, error) {
	var decisions []ask.Reply
	for _, d := range []struct {
		given bool
		reply ask.Reply
	}{
		{o.approve, ask.Reply{Action: ask.Approve}}, {o.forSession, ask.Reply{Action: ask.ApproveForSession}},
		{o.deny, ask.Reply{Action: ask.Deny, Text: o.feedback}}, {o.answerGiven, ask.Reply{Action: ask.Answer, Text: o.answer}},
	} {
		if d.given {
			decisions = append(decisions, d.reply)
		}
	}
	switch {
	case verb != "" && verb != "list" && verb != "answer":
		return ask.Reply{}, fmt.Errorf("there is no %q: want list or answer", verb)
	case verb != "list" && !o.out.forPeople():
		return ask.Reply{}, errors.New("--output is for inbox list")
	case verb != "answer" && (len(decisions) > 0 || o.hasFeedback):
		return ask.Reply{}, errors.New("decisions are for inbox answer ID")
	case verb == "" && o.session != "":
		return ask.Reply{}, errors.New("--session is for inbox list and inbox answer ID")
	case verb != "answer":
		return ask.Reply{}, nil
	case id == "":
		return ask.Reply{}, errors.New("the ID is missing; inbox list has it")
	case len(decisions) != 1:
		return ask.Reply{}, errors.New("want one of --approve, --approve-for-session, --deny and --answer TEXT")
	case o.hasFeedback && !o.deny:
		return ask.Reply{}, errors.New("--feedback is for --deny")
	}
	return decisions[0], nil
}

// pending yields the callbacks that wait, in all sessions or in that of --session.
func (o *inboxOptions) pending(ctx context.Context, client *copilot.Client) iter.Seq2[*copilot.Callback, error] {
	if o.session == "" {
		return client.Pending(ctx)
	}
	return func(yield func(*copilot.Callback, error) bool) {
		list, err := client.Session(o.session).Pending(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, cb := range list {
			if !yield(cb, nil) {
				return
			}
		}
	}
}

func (o *inboxOptions) list(p *program, pending iter.Seq2[*copilot.Callback, error]) error {
	rows := table{columns: []column{{head: "ID"}, {head: "SESSION"}, {head: "KIND"}, {head: "QUESTION", least: 20}}}
	for cb, err := range pending {
		if err != nil {
			return err
		}
		q := ask.Of(cb.Proto)
		rows.add(cb.Proto, cb.ID, cb.SessionID, string(cb.Kind),
			terminal.Cut(terminal.CleanLine(strings.TrimSuffix(q.Title+": "+q.Detail, ": ")), inboxWidth))
	}
	if len(rows.rows) == 0 && o.out.forPeople() {
		fmt.Fprintln(p.stderr, "Nothing waits.")
		return nil
	}
	return o.out.print(rows)
}

// inboxWidth is how much of a question a line of the list has.
const inboxWidth = 100

func (p *program) answerInbox(
	ctx context.Context, client *copilot.Client, pending iter.Seq2[*copilot.Callback, error], id string, reply ask.Reply,
) error {
	var found []*copilot.Callback
	for cb, err := range pending {
		if err != nil {
			return err
		}
		if cb.ID == id {
			found = append(found, cb)
		}
	}
	switch len(found) {
	case 0:
		return fmt.Errorf("no callback %q waits: it may have been answered, or its time is over; inbox list has those that wait", id)
	case 1:
	default:
		return fmt.Errorf("callbacks of %d sessions have the id %q: choose one with --session", len(found), id)
	}
	q := ask.Of(found[0].Proto)
	answer, err := q.Answer(reply)
	if err != nil {
		return err
	}
	if err := resolve(ctx, client.Session(found[0].SessionID), id, answer); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "answered: %s\n", terminal.CleanLine(q.Title))
	return nil
}

// lateWait bounds the wait for the end of a callback that has another answer.
const lateWait = 5 * time.Second

// resolve answers a callback. If another answer is first, the error says whose: the session's frames have it, which are
// followed before the answer is sent.
func resolve(ctx context.Context, s *copilot.Session, id string, answer *bridgev1.Answer) error {
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	next, stop := iter.Pull2(s.Frames(following, copilot.FromNow(), copilot.WithCallbacks()))
	defer stop()
	if _, err, _ := next(); err != nil {
		return err
	}
	err := s.Resolve(ctx, id, answer)
	if !copilot.IsReason(err, copilot.ReasonCallbackResolved) {
		return err
	}
	defer time.AfterFunc(lateWait, cancel).Stop()
	for {
		frame, err, more := next()
		if err != nil || !more { // it ended before the frames were followed
			return errors.New("your answer came too late: the question has been answered or withdrawn")
		}
		if ended := frame.GetCallbackResolved(); ended.GetCallbackId() == id {
			return fmt.Errorf("your answer came too late: %s", terminal.CleanLine(ask.HowEnded(ended)))
		}
	}
}
