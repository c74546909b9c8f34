// Package inbox shows what waits for a person in all sessions, and sends their answers.
//
// It writes and reads lines, without colours and without moving the cursor: a question is written when it comes up, and
// a line when it ends, so that the terminal's scrollback is the record. All texts of the agent are shown through package
// terminal.
package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app/ask"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// list is what waits, in the order in which it came up. It does no I/O.
type list struct {
	waiting []entry
	// The number of the newest question.
	last int
}

type entry struct {
	number int
	change copilot.PendingChange
}

// take takes a change, and returns the lines that tell of it.
func (l *list) take(change copilot.PendingChange) string {
	if !change.Ended {
		l.last++
		l.waiting = append(l.waiting, entry{l.last, change})
		return question(l.last, change)
	}
	i := slices.IndexFunc(l.waiting, func(e entry) bool {
		return e.change.SessionID == change.SessionID && e.change.ID == change.ID
	})
	if i < 0 {
		return ""
	}
	number := l.waiting[i].number
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return fmt.Sprintf("[%d] is closed: %s\n", number, terminal.CleanLine(ask.HowEnded(change.Resolved)))
}

// numbered is a line with the number of its question.
var numbered = regexp.MustCompile(`^#?(\d+):\s*(.*)$`)

// answer reads a line: "NUMBER: ANSWER", or the answer alone if one question waits.
func (l *list) answer(line string) (entry, *bridgev1.Answer, error) {
	line = strings.TrimSpace(line)
	var none entry
	if len(l.waiting) == 0 {
		return none, nil, errors.New("nothing waits for an answer")
	}
	at := 0
	if found := numbered.FindStringSubmatch(line); found != nil {
		number, _ := strconv.Atoi(found[1]) // one that is too large is of no question
		at, line = slices.IndexFunc(l.waiting, func(e entry) bool { return e.number == number }), found[2]
		if at < 0 {
			return none, nil, fmt.Errorf("question %s does not wait", found[1])
		}
	} else if len(l.waiting) > 1 {
		return none, nil, fmt.Errorf("%d questions wait: put the number first, as in \"%d: y\"", len(l.waiting),
			l.waiting[0].number)
	}
	q := ask.Of(l.waiting[at].change.Proto)
	reply, err := q.Parse(line)
	if err != nil {
		return none, nil, err
	}
	answer, err := q.Answer(reply)
	return l.waiting[at], answer, err
}

// question is a question with all that its answer depends on.
func question(number int, change copilot.PendingChange) string {
	q := ask.Of(change.Proto)
	lines := []string{
		fmt.Sprintf("[%d] %s", number, terminal.CleanLine(q.Title)), "  Session: " + terminal.CleanLine(change.SessionID),
	}
	if q.Detail != "" {
		for line := range strings.SplitSeq(terminal.Clean(strings.Trim(q.Detail, "\n")), "\n") {
			lines = append(lines, "  | "+line)
		}
	}
	for _, n := range q.Notes {
		lines = append(lines, "  "+terminal.CleanLine(n))
	}
	for i, choice := range q.Choices {
		lines = append(lines, fmt.Sprintf("  %d. %s", i+1, terminal.CleanLine(choice)))
	}
	for _, f := range q.Fields {
		lines = append(lines, "  - "+terminal.CleanLine(f.Line()))
	}
	return strings.Join(append(lines, "  "+terminal.CleanLine(q.Hint())), "\n") + "\n"
}

// Run shows what waits and takes answers until the input or ctx ends. Meanwhile questions wait for this person also in
// sessions in which nobody else answers them.
func Run(ctx context.Context, client *copilot.Client, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, watching := watch(ctx, client)
	input, results := terminal.Lines(ctx, in), make(chan string)
	fmt.Fprintln(out, "Waiting for questions. Type an answer, or NUMBER: ANSWER; Ctrl-C leaves.")
	var l list
	for {
		text := ""
		select {
		case change := <-changes:
			text = l.take(change)
		case err := <-watching:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case line, ok := <-input:
			if !ok {
				return nil
			}
			text = l.line(ctx, line, results)
		case text = <-results:
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
}

// line takes a line that was typed. Its answer is sent beside the list; results receives what became of it.
func (l *list) line(ctx context.Context, line terminal.Line, results chan<- string) string {
	switch {
	case line.Err != nil:
		return terminal.CleanLine(line.Err.Error()) + "\n"
	case strings.TrimSpace(line.Text) == "":
		return ""
	}
	e, answer, err := l.answer(line.Text)
	if err != nil {
		return terminal.CleanLine(err.Error()) + "\n"
	}
	go func() {
		err := e.change.Answer(ctx, answer)
		if err == nil {
			return // the end of the question says it
		}
		text := fmt.Sprintf("[%d] %s\n", e.number, terminal.CleanLine(words(err)))
		select {
		case results <- text:
		case <-ctx.Done():
		}
	}()
	return ""
}

// words says why an answer was not taken. The end of the question, which is a line of its own, says who was first.
func words(err error) string {
	var e *copilot.Error
	switch {
	case copilot.IsReason(err, copilot.ReasonCallbackResolved):
		return "your answer came too late"
	case errors.As(err, &e):
		return "your answer was not taken: " + e.Message
	}
	return "your answer was not taken: " + err.Error()
}

// watch receives the changes of the inbox until ctx ends, and the error with which they end.
func watch(ctx context.Context, client *copilot.Client) (<-chan copilot.PendingChange, <-chan error) {
	changes, ended := make(chan copilot.PendingChange), make(chan error, 1)
	go func() {
		var last error
		defer func() { ended <- last }()
		for change, err := range client.WatchPending(ctx, copilot.PendingOptions{Handle: true}) {
			if err != nil {
				last = err
				return
			}
			select {
			case changes <- change:
			case <-ctx.Done():
				return
			}
		}
	}()
	return changes, ended
}
