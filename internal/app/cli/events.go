package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

const eventsUsage = `Prints the events of a session, a line each: when, what, and a short text. It begins with the
first event and follows the session until Ctrl-C, or until the session is closed. After a broken connection it continues
after the last event.

  copilot-grpc events SESSION
  copilot-grpc events SESSION --new --types 'assistant.*,tool.*'
  copilot-grpc events SESSION -o json --after 1795776674063/2 --no-follow
  copilot-grpc events SESSION --since 10m
  copilot-grpc events SESSION --raw --no-follow | jq .type

Text that the model streams appears as it arrives. A terminal shows as much of a line as fits. Without --types the text
leaves out model.*, the CLI's log of its model requests. With -o json each line is a document with "position", which
--after takes to continue, and "event", "gap", "runtimeRestarted" or "turnEnded".

--types refuses a type that looks like a misspelt one, and warns of others that this program does not know: a newer CLI
may have them.

--since compares the times of the events, which are those of the CLI's machine, with the clock of this one. Events that
happen later are printed whatever their times are. With --raw each line is an event as the CLI sent it, byte for byte; at
a terminal, characters that it would act on are escaped. Gaps are reported on stderr then.`

type eventsOptions struct {
	connection    *connection
	out           *printer
	after         string
	since         string
	types         list
	new, noFollow bool
	raw           bool
}

func setupEvents(p *program, f *flags) action {
	o := eventsOptions{connection: p.connection(f), out: p.printer(f)}
	f.StringVar(&o.after, "after", "", "begin after this `position` of the session, EPOCH/SEQUENCE")
	f.BoolVar(&o.new, "new", false, "begin with the next event")
	f.StringVar(&o.since, "since", "", "begin with the first event that is not older than this `time`: a duration such as "+
		"10m, or an RFC 3339 time")
	f.BoolVar(&o.raw, "raw", false, "print the CLI's JSON of each event unchanged, one on a line")
	f.Var(&o.types, "types", "only events of these `types`, such as assistant.message or 'tool.*'; with commas")
	f.BoolVar(&o.noFollow, "no-follow", false, "end with the last event that there is")
	return func(ctx context.Context, args []string) error {
		e := &eventPrinter{out: o.out, all: len(o.types) > 0, rest: p.stderr}
		begin, err := o.begin()
		if err == nil && o.since != "" {
			e.since, err = sinceTime(o.since, time.Now())
		}
		if err == nil {
			err = checkTypes(o.types, p.stderr)
		}
		if err != nil {
			return usageError{err}
		}
		o.connection.session = args[0]
		return o.connection.with(ctx, func(client *copilot.Client) error {
			session := client.Session(args[0])
			if o.raw {
				e.whole = func(at *bridgev1.Position) (json.RawMessage, error) { return session.ReadEvent(ctx, at) }
			}
			return o.print(ctx, p, session, begin, e)
		})
	}
}

// begin is where the events begin, and which they are.
func (o *eventsOptions) begin() ([]copilot.EventsOption, error) {
	begin := []copilot.EventsOption{copilot.FromBeginning()}
	switch {
	case o.raw && !o.out.forPeople():
		return nil, errors.New("--raw excludes --output")
	case o.since != "" && (o.after != "" || o.new):
		return nil, errors.New("--since excludes --after and --new")
	case o.new && (o.after != "" || o.noFollow):
		return nil, errors.New("--new excludes --after and --no-follow")
	case o.new:
		begin[0] = copilot.FromNow()
	case o.after != "":
		after, err := copilot.ParsePosition(o.after)
		if err != nil {
			return nil, fmt.Errorf("--after: %w", err)
		}
		begin[0] = copilot.After(after)
	}
	if len(o.types) > 0 {
		begin = append(begin, copilot.OfTypes(o.types...))
	}
	if o.raw {
		begin = append(begin, copilot.WithStreamOptions(&bridgev1.StreamOptions{OriginalJson: true}))
	}
	return begin, nil
}

func sinceTime(text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("--since %q: want a duration such as 10m, or a time such as %s", text,
			now.UTC().Format(time.RFC3339))
	}
	return at, nil
}

// print prints the events. A user who interrupts it is told how to continue.
func (o *eventsOptions) print(
	ctx context.Context, p *program, session *copilot.Session, begin []copilot.EventsOption, e *eventPrinter,
) error {
	err := o.read(ctx, p, session, begin, e)
	if err = errors.Join(err, e.endText()); err != nil && ctx.Err() == nil {
		return unjoined(err)
	}
	if ctx.Err() != nil && e.last != nil {
		fmt.Fprintf(p.stderr, "Continue with --after %s\n", copilot.FormatPosition(e.last))
	}
	return nil
}

func (o *eventsOptions) read(
	ctx context.Context, p *program, session *copilot.Session, begin []copilot.EventsOption, e *eventPrinter,
) error {
	if o.noFollow {
		p.page()
		var gap *copilot.GapError
		for event, err := range session.History(ctx, begin...) {
			switch {
			case errors.As(err, &gap):
				err = e.gap(gap.Proto)
			case err == nil:
				err = e.event(event)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for frame, err := range session.Frames(ctx, begin...) {
		if err != nil {
			return err
		}
		if err := e.frame(frame); err != nil {
			return err
		}
		if closed := frame.GetClosed(); closed != nil {
			reason := enumText(closed.GetReason(), "CLOSE_REASON_")
			fmt.Fprintf(p.stderr, "The session is closed: %s\n", reason)
		}
	}
	return nil
}

type eventPrinter struct {
	out *printer
	// all says that the events were asked for by their types, textOnly that messages have no prefix.
	all, textOnly bool
	// whole reads the JSON of an event that was shortened, and says that events are printed raw; nil otherwise.
	whole func(*bridgev1.Position) (json.RawMessage, error)
	// rest is where the others go that are no events, if events are printed raw.
	rest io.Writer
	// since is the time before which events are left out; zero after the first that is not. missing is the gap before it.
	since   time.Time
	missing *bridgev1.Gap
	last    *bridgev1.Position
	// streaming is the message whose text is on the current line; empty for none. streamed are all of which text was
	// streamed.
	streaming string
	streamed  map[string]bool
}

func (e *eventPrinter) frame(frame *bridgev1.SubscribeResponse) error {
	switch f := frame.GetFrame().(type) {
	case *bridgev1.SubscribeResponse_Events:
		for _, event := range f.Events.GetEvents() {
			if err := e.event(event); err != nil {
				return err
			}
		}
	case *bridgev1.SubscribeResponse_Gap:
		return e.gap(f.Gap)
	case *bridgev1.SubscribeResponse_CaughtUp:
		return e.begin()
	case *bridgev1.SubscribeResponse_RuntimeRestarted:
		return e.other(frame.GetResumeAfter(), "runtimeRestarted", f.RuntimeRestarted,
			"runtime.restarted", f.RuntimeRestarted.GetCause())
	case *bridgev1.SubscribeResponse_TurnEnded:
		if e.whole != nil {
			return nil
		}
		status := f.TurnEnded.GetOutcome().GetStatus().String()
		return e.other(frame.GetResumeAfter(), "turnEnded", f.TurnEnded, "turn.ended",
			strings.ToLower(strings.TrimPrefix(status, "TURN_STATUS_")))
	}
	return nil
}

// begin ends the wait for events that are not older than --since.
func (e *eventPrinter) begin() error {
	e.since = time.Time{}
	gap := e.missing
	if e.missing = nil; gap == nil {
		return nil
	}
	return e.gap(gap)
}

// isOlder reports whether an event is older than --since.
func (e *eventPrinter) isOlder(event *bridgev1.Event) bool {
	return !e.since.IsZero() && event.GetEvent().GetTimestamp().AsTime().Before(e.since)
}

func (e *eventPrinter) gap(gap *bridgev1.Gap) error {
	if !e.since.IsZero() {
		e.missing = gap
		return nil
	}
	reason := enumText(gap.GetReason(), "GAP_REASON_")
	return e.other(gap.GetThrough(), "gap", gap, "GAP", fmt.Sprintf("events after %s up to %s are missing (%s)",
		copilot.FormatPosition(gap.GetAfter()), copilot.FormatPosition(gap.GetThrough()), reason))
}

// other prints what is no event of the CLI's.
func (e *eventPrinter) other(at *bridgev1.Position, key string, m proto.Message, what, short string) error {
	if !e.since.IsZero() {
		return nil
	}
	if copilot.ComparePositions(at, e.last) > 0 {
		e.last = at
	}
	switch {
	case e.whole != nil:
		_, err := fmt.Fprintf(e.rest, "%s: %s\n", what, terminal.CleanLine(short))
		return err
	case !e.out.forPeople():
		return e.document(at, key, m)
	}
	return e.line(time.Time{}, what, short)
}

func (e *eventPrinter) document(at *bridgev1.Position, key string, m proto.Message) error {
	return e.out.line(members{{"position", copilot.FormatPosition(at)}, {key, m}})
}

func (e *eventPrinter) event(event *bridgev1.Event) error {
	if e.isOlder(event) {
		e.missing = nil
		return nil
	}
	if err := e.begin(); err != nil {
		return err
	}
	e.last = event.GetPosition()
	if e.whole != nil {
		return e.raw(event)
	}
	if !e.out.forPeople() {
		return e.document(event.GetPosition(), "event", event.GetEvent())
	}
	at := time.Time{}
	if t := event.GetEvent().GetTimestamp(); t != nil {
		at = t.AsTime()
	}
	if isText, err := e.message(at, event.GetEvent()); isText {
		return err
	}
	if !e.all && (isPart(event.GetEvent()) || strings.HasPrefix(event.GetEvent().GetEventType(), "model.")) {
		return nil
	}
	return e.line(at, event.GetEvent().GetEventType(), shortText(event.GetEvent()))
}

// message prints the text of the agent that an event has, and reports whether it is such an event.
func (e *eventPrinter) message(at time.Time, event *cliv1.SessionEvent) (isText bool, err error) {
	switch d := event.GetData().(type) {
	case *cliv1.SessionEvent_AssistantMessageDelta:
		return true, e.text(at, d.AssistantMessageDelta.GetMessageId(), d.AssistantMessageDelta.GetDeltaContent())
	case *cliv1.SessionEvent_AssistantMessage:
		id, text := d.AssistantMessage.GetMessageId(), d.AssistantMessage.GetContent()
		if e.streamed[id] || text == "" { // a message that only calls tools
			return true, e.endText()
		}
		return true, errors.Join(e.text(at, id, text), e.endText())
	}
	return false, nil
}

func (e *eventPrinter) raw(event *bridgev1.Event) error {
	text := event.GetOriginalJson()
	if event.GetTruncated() {
		whole, err := e.whole(event.GetPosition())
		if err != nil {
			return err
		}
		text = string(whole)
	}
	if isTerminal(e.out.out) {
		text = terminal.CleanJSON(text)
	}
	_, err := io.WriteString(e.out.out, text+"\n")
	return err
}

// isPart reports whether an event is a part of one that follows, and has nothing of its own to show.
func isPart(event *cliv1.SessionEvent) bool {
	switch event.GetData().(type) {
	case *cliv1.SessionEvent_AssistantMessageStart, *cliv1.SessionEvent_AssistantStreamingDelta,
		*cliv1.SessionEvent_AssistantReasoningDelta, *cliv1.SessionEvent_AssistantToolCallDelta,
		*cliv1.SessionEvent_ToolExecutionPartialResult:
		return true
	}
	return false
}

const whatWidth = 22

// prefix begins the line of an event.
func prefix(at time.Time, what string) string {
	clock := strings.Repeat(" ", len(time.TimeOnly))
	if !at.IsZero() {
		clock = at.Local().Format(time.TimeOnly)
	}
	return clock + between + pad(terminal.CleanLine(what), whatWidth) + between
}

// line prints a line, cut to the terminal.
func (e *eventPrinter) line(at time.Time, what, short string) error {
	if err := e.endText(); err != nil {
		return err
	}
	line := strings.TrimRight(prefix(at, what)+terminal.CleanLine(short), " ")
	_, err := io.WriteString(e.out.out, cut(line, terminalWidth(e.out.out))+"\n")
	return err
}

// text prints a part of a message's text.
func (e *eventPrinter) text(at time.Time, message, text string) error {
	if e.streaming != message {
		if err := e.endText(); err != nil {
			return err
		}
		if !e.textOnly {
			text = prefix(at, "assistant.message") + text
		}
	}
	if e.streamed == nil {
		e.streamed = map[string]bool{}
	}
	e.streaming, e.streamed[message] = message, true
	_, err := io.WriteString(e.out.out, terminal.Clean(text))
	return err
}

// endText ends the line of a message's text.
func (e *eventPrinter) endText() error {
	if e.streaming == "" {
		return nil
	}
	e.streaming = ""
	return e.out.out.endLine()
}
