package session

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// prompts are the session's prompts that the CLI was given and whose turns have not ended:
// the outbox, which has them on disk, and who waits for their turns.
type prompts struct {
	box *outbox.Box
	// flushing: a goroutine is about to write down what has changed.
	flushing atomic.Bool

	// What follows is guarded by the session's mu.

	// waiters are those of the prompts, by entry; restored those of an earlier life of the
	// bridge, by the messages' ids.
	waiters  map[uint64]*Waiter
	restored map[string]*Waiter
	// delivery gives the CLI again what is owed; nil if nothing is.
	delivery *delivery
}

func (p *prompts) init(box *outbox.Box) {
	if box == nil {
		box, _ = outbox.Open(nil) // in memory nothing fails
	}
	p.box, p.waiters, p.restored = box, map[uint64]*Waiter{}, map[string]*Waiter{}
}

// expect ties a waiter to its prompt.
func (s *Session) expect(w *Waiter, n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.state.Entry = n
	s.prompts.waiters[n] = w
}

// over notes that the turn of a prompt has ended. The caller holds the session's mu.
func (p *prompts) over(s *Session, entry uint64, out Outcome) {
	delete(p.waiters, entry)
	if out.Status == bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST && out.Err == nil {
		p.box.End(entry) // the history still has to say whether it has the prompt
	} else {
		p.box.Finish(entry)
	}
	p.flushSoon(s)
}

// flushSoon writes down what has changed, once the journal has what it follows from.
func (p *prompts) flushSoon(s *Session) {
	if s.host == nil || !p.flushing.CompareAndSwap(false, true) {
		return
	}
	s.host.Go(func(ctx context.Context) {
		err := s.journal.Settle(ctx)
		p.flushing.Store(false)
		if err == nil {
			s.flushPrompts()
		}
	})
}

// flushPrompts writes down what has changed.
func (s *Session) flushPrompts() {
	if err := s.prompts.box.Flush(); err != nil {
		s.host.Logger().Error("prompts are in memory only", "session_id", s.id, "error", err)
	}
}

// SavePrompts writes down what has changed, and ends the outbox. It is called when the bridge
// ends.
func (s *Session) SavePrompts() {
	s.flushPrompts()
	s.prompts.box.Close()
}

// ClosePrompts ends the outbox, in which nothing is written any more. It is called before the
// session's directory is removed, or given to another.
func (s *Session) ClosePrompts() { s.prompts.box.Close() }

// outboxForm is a prompt's form in the outbox.
func (m Message) outboxForm(params jsonobj.Object) outbox.Prompt {
	return outbox.Prompt{
		Method: m.Method, Params: params.JSON(), Override: m.Override, Immediate: m.Immediate,
		Request: m.Request, AskedAt: time.Now(),
	}
}

// plainMembers are the members of a prompt whose contents are the user's words and files, in
// which no member is a secret because of its name.
var plainMembers = map[string]bool{"prompt": true, "displayPrompt": true, "attachments": true, "messages": true, "responseFormat": true}

// promptWithoutSecrets returns a prompt's parameters as they are kept on disk, and the paths
// of what they lack.
func promptWithoutSecrets(params json.RawMessage) (json.RawMessage, []string) {
	all, err := jsonobj.Parse(params)
	if err != nil {
		return params, nil
	}
	var lacks []string
	kept := make(jsonobj.Object, 0, len(all))
	for _, m := range all {
		if !plainMembers[m.Key] {
			one := config.WithoutSecrets(jsonobj.Object{m}.JSON(), "", &lacks)
			if o, err := jsonobj.Parse(one); err == nil {
				kept = append(kept, o...)
			}
			continue
		}
		kept = append(kept, m)
	}
	return kept.JSON(), lacks
}

// idsOf are the ids in the CLI's answer to a prompt; some answers have none.
func idsOf(result json.RawMessage) []string {
	var r struct {
		MessageID  string
		MessageIDs []string
	}
	_ = json.Unmarshal(result, &r)
	if r.MessageID != "" {
		return []string{r.MessageID}
	}
	return r.MessageIDs
}

// said are the user's messages in a history, and those that the journal alone has since the
// first of some prompts.
func (s *Session) said(ctx context.Context, history []*journal.Record, entries []outbox.Entry) (out []outbox.Said) {
	there := map[journal.ID]bool{}
	for _, rec := range history {
		if rec.Type == "user.message" && rec.Agent == "" {
			there[rec.ID] = true
			one := saidBy(rec)
			one.Pos, _ = s.journal.Lookup(rec.ID)
			if one.Pos.Seq == 0 {
				one.Pos = journal.Position{}
			}
			one.History = true
			out = append(out, one)
		}
	}
	var after journal.Position
	if first := entries[0].Before; first.Epoch == s.journal.Last().Epoch {
		after = first
	}
	s.each(ctx, after, func(rec *journal.Record) bool {
		if rec.Type == "user.message" && rec.Agent == "" && !there[rec.ID] {
			one := saidBy(rec)
			one.Pos = rec.Pos
			out = append(out, one)
		}
		return true
	})
	return out
}

func saidBy(rec *journal.Record) outbox.Said {
	var d struct{ MessageID string }
	event.Data(rec, &d)
	var e struct{ Timestamp time.Time }
	if json.Unmarshal(rec.JSON, &e) != nil || e.Timestamp.IsZero() {
		e.Timestamp = time.Now() // it does not say, so that it may have been any time
	}
	return outbox.Said{MessageID: d.MessageID, Content: contentOf(rec), At: e.Timestamp}
}

// settlement is what is known of the prompts once the history was looked at.
type settlement struct {
	entries   []outbox.Entry
	decisions []outbox.Decision
	outcomes  []Outcome // of the turns of those that the journal has
	// unread is why the history could not be read; nil if it could.
	unread error
}

// lookUp compares the prompts with the history. It comes before the journal takes the history
// up, and its settlement after.
func (s *Session) lookUp(ctx context.Context, history []*journal.Record, unread error) settlement {
	entries := s.prompts.box.Entries()
	if len(entries) == 0 {
		return settlement{}
	}
	found := settlement{entries, outbox.Decide(entries, s.said(ctx, history, entries)), make([]Outcome, len(entries)), unread}
	for i, d := range found.decisions {
		if d.At.Seq > 0 {
			found.outcomes[i] = s.OutcomeOf(ctx, d.At)
		}
	}
	return found
}

// settlePrompts does with the prompts what the history says. The caller holds mu, and flushes
// after.
func (s *Session) settlePrompts(found settlement) {
	for i := range found.entries {
		e, d := &found.entries[i], found.decisions[i]
		if e.Owed && found.unread == nil && e.Obstacle() == "" {
			continue // it was decided by an earlier load, and not given to the CLI since
		}
		if d.Verdict == outbox.Forgotten && found.unread != nil {
			d.Verdict = outbox.Taken // as far as can be known
		}
		s.settlePrompt(e, d, found.outcomes[i], found.unread)
	}
	if s.prompts.box.Owes() {
		s.deliver()
	}
}

// settlePrompt is settlePrompts for one of them. The caller holds mu.
func (s *Session) settlePrompt(e *outbox.Entry, d outbox.Decision, out Outcome, unread error) {
	w := s.prompts.waiters[e.N]
	if (d.Verdict == outbox.Taken || d.Verdict == outbox.Partly) && d.At.Seq == 0 && !e.Ended { // nobody was told of its turn
		out = Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: s.journal.Last()}
		s.turnOver(out)
	}
	if !e.Acknowledged() {
		switch {
		case w != nil && (d.Verdict == outbox.Untaken || d.Verdict == outbox.Overtaken): // whoever sends it will know
			s.prompts.box.Pass(e.N)
		case w == nil:
			s.prompts.box.Finish(e.N)
		}
		return
	}
	obstacle := e.Obstacle()
	switch {
	case d.Verdict == outbox.Taken:
		if s.prompts.box.End(e.N); unread == nil {
			s.prompts.box.Finish(e.N)
		}
		if w != nil {
			s.carryOut(s.turn.Finish(&w.state, out))
		}
	case d.Verdict == outbox.Forgotten:
		s.losePrompt(e, "the CLI took the message up and ended before it wrote that down; the conversation does not have it")
	case d.Verdict == outbox.Overtaken:
		s.losePrompt(e, "the CLI ended before it accepted the message, and accepted a later one: it cannot be sent in order any more")
	case unread != nil:
		s.losePrompt(e, "the runtime ended before it was seen to take the message up, and the history cannot be read: "+unread.Error())
	case obstacle != "":
		s.losePrompt(e, "the runtime ended before it was seen to take the message up; the history does not have it, and "+obstacle)
	default:
		s.prompts.box.Owe(e.N, d.Done)
	}
}

// losePrompt tells everybody that a prompt is not part of the conversation. The caller holds mu.
func (s *Session) losePrompt(e *outbox.Entry, why string) {
	ids := e.Names()
	note := outbox.Note{IDs: ids, Reason: fault.Name(fault.SendInDoubt), Text: why}
	note.At = s.journal.Post(s.noteOf(note), journal.Position{})
	s.marks.turnEnd = note.At
	if s.host != nil {
		s.host.Keep(s)
	}
	s.prompts.box.Lose(e.N, note)
	if w := s.prompts.waiters[e.N]; w != nil {
		out := Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: note.At, Err: lostPrompt(ids, why)}
		s.carryOut(s.turn.Finish(&w.state, out))
	}
}

// Resent is the note that messages were given to the CLI again.
type Resent struct{ IDs, As []string }

// noteOf is the journal's form of a note about prompts.
func (s *Session) noteOf(n outbox.Note) any {
	if len(n.As) > 0 {
		return Resent{n.IDs, n.As}
	}
	out := Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: s.journal.Last()}
	return TurnOver{Outcome: out, IDs: n.IDs, Err: lostPrompt(n.IDs, n.Text)}
}

// lostPrompt is the error for a prompt that is not part of the conversation.
func lostPrompt(ids []string, why string) error {
	err := fault.New(fault.SendInDoubt, "%s", why)
	if len(ids) > 0 {
		err = err.With("message_id", ids[0])
	}
	return err
}

// restorePrompts takes up the prompts of an earlier life. The caller holds mu.
func (s *Session) restorePrompts() {
	s.turn.Heard(time.Now())
	for _, e := range s.prompts.box.Entries() {
		if !e.Acknowledged() || e.Ended {
			continue
		}
		names := e.Names()
		w := &Waiter{s: s}
		w.state.Init()
		w.state.Entry = e.N
		s.turn.Recover(&w.state, last(names))
		s.prompts.waiters[e.N] = w
		for _, id := range names {
			s.prompts.restored[id] = w
		}
	}
}

// tellAgain gives readers the notes of an earlier life, in order, with the one about the turn
// that it cut off. The caller holds mu.
func (s *Session) tellAgain() {
	cut := s.cutOff()
	s.prompts.box.Renumber(func(n outbox.Note) journal.Position {
		if cut != nil && !before(n.At, s.marks.interruptedAt) {
			cut()
			cut = nil
		}
		return s.journal.Post(s.noteOf(n), n.At)
	})
	if cut != nil {
		cut()
	}
}

// before reports whether a position is known and before another, of which zero is the end.
func before(a, b journal.Position) bool {
	return b == journal.Position{} || a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.Seq < b.Seq
}

// Repeated is what is known of a message whose request comes again.
type Repeated struct {
	// ResentID is its id since it was given to the CLI again; empty if it was not.
	ResentID string
	// Waiter waits for its turn, if that was begun in an earlier life of the bridge and had
	// not ended.
	Waiter *Waiter
}

// Repeat tells what has become of a message that the CLI accepted. It fails with SEND_IN_DOUBT
// if the message is not part of the conversation. Where only the history can tell, the session
// is loaded.
func (s *Session) Repeat(ctx context.Context, id string) (Repeated, error) {
	if id == "" {
		return Repeated{}, nil
	}
	if s.State() == Unloaded && s.prompts.box.Pending(id) {
		if _, err := s.Loaded(ctx); err != nil {
			return Repeated{}, fault.Wrap(err, fault.SendInDoubt, "the runtime ended, and the session cannot be loaded to see whether it took the message up").
				With("message_id", id)
		}
	}
	if why, ok := s.prompts.box.LostBecause(id); ok {
		return Repeated{}, lostPrompt([]string{id}, why)
	}
	if err := s.Doubted(id); err != nil {
		return Repeated{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return Repeated{s.prompts.box.MovedTo(id), s.prompts.restored[id]}, nil
}

// AnswerTo returns what was answered to an acknowledged prompt whose turn has not ended, by
// its request.
func (s *Session) AnswerTo(request string) (id string, before journal.Position, ok bool) {
	return s.prompts.box.AnswerTo(request)
}

// abortPrompts ends the prompts that an abort has ended, of which the CLI may not know.
func (s *Session) abortPrompts(which []outbox.Entry) bool {
	if len(which) == 0 {
		return false
	}
	ended := s.prompts.box.Clear(func(e *outbox.Entry) bool {
		return slices.ContainsFunc(which, func(o outbox.Entry) bool { return o.N == e.N })
	})
	s.flushPrompts()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_ABORTED, End: s.journal.Last()}
	for _, n := range ended {
		if w := s.prompts.waiters[n]; w != nil && w.state.Unconfirmed() {
			s.carryOut(s.turn.Finish(&w.state, out))
		}
	}
	return len(ended) > 0
}

// acknowledged are the prompts that the CLI has answered.
func (s *Session) acknowledged() []outbox.Entry {
	return slices.DeleteFunc(s.prompts.box.Entries(), func(e outbox.Entry) bool { return !e.Acknowledged() })
}

// errBehind says that prompts are to be given to the CLI before this one.
var errBehind = errors.New("prompts of a lost runtime come first")
