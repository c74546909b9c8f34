package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// conversation is a session of the schedule.
type conversation struct {
	n  int
	id string
}

// prompt is something said to a session, with a word that no other prompt has.
type prompt struct {
	session *conversation
	word    string

	mu        sync.Mutex
	messages  map[string]bool // ids that Send gave
	completed bool            // a call said so of its turn
}

// prompts are all prompts of a schedule.
type prompts struct {
	mu  sync.Mutex
	all []*prompt
}

// add makes a prompt with a new word.
func (p *prompts) add(to *conversation) *prompt {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := &prompt{session: to, word: fmt.Sprintf("w%dw", len(p.all)), messages: map[string]bool{}}
	p.all = append(p.all, n)
	return n
}

// of returns the prompts of a session.
func (p *prompts) of(c *conversation) (out []*prompt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		if one.session == c {
			out = append(out, one)
		}
	}
	return out
}

// repeat makes a call again, under its request id and by another caller.
func (w *world) repeat(s step) {
	a := w.calls.recent(s.pick[0])
	if a != nil {
		c := w.caller(s.pick[1])
		w.calls.running.Go(func() { _ = w.calls.ask(c, a) })
	}
}

func (w *world) caller(pick uint32) *caller { return w.callers[int(pick)%len(w.callers)] }

func (w *world) conversation(pick uint32) *conversation { return w.sessions[int(pick)%len(w.sessions)] }

// create makes a session, and waits for it: what else is there to do in it.
func (w *world) create(s step) {
	if len(w.sessions) >= maxSessions {
		return
	}
	c := &conversation{n: len(w.sessions)}
	request := &bridgev1.CreateSessionRequest{
		RequestId: fmt.Sprintf("create-%d", c.n), Config: w.config(),
		Handlers: &bridgev1.Handlers{Permission: s.pick[2]%2 == 0},
	}
	a := w.calls.asking("CreateSession", func(ctx context.Context, by *caller) (string, error) {
		r, err := by.sessions.CreateSession(ctx, request)
		return r.GetSession().GetSessionId(), err
	})
	for try := s.pick[1]; w.ctx.Err() == nil && w.calls.ask(w.caller(try), a) != nil; try++ {
		pause(w.ctx, 20*time.Millisecond)
	}
	for id := range a.results {
		c.id = id
	}
	w.rec.logf("session %d is %s", c.n, c.id)
	if c.id == "" {
		return
	}
	// The CLI forgets a session that never had a prompt.
	for try := 0; w.ctx.Err() == nil; try++ {
		p, text := w.say(c, "text", false)
		if w.calls.do("SendAndWait", func(ctx context.Context) error {
			r, err := w.caller(uint32(try)).sessions.SendAndWait(ctx,
				&bridgev1.SendAndWaitRequest{RequestId: "first-" + p.word, SessionId: c.id, Prompt: text})
			p.ended(r.GetOutcome())
			return err
		}) == nil {
			break
		}
		pause(w.ctx, 20*time.Millisecond)
	}
	w.sessions = append(w.sessions, c)
}

func (w *world) config() *cliv1.SessionConfig {
	c := &cliv1.SessionConfig{
		ClientName: proto.String("chaos"), Streaming: proto.Bool(true), WorkingDirectory: proto.String(w.dir),
		Tools: []*cliv1.ToolDefinition{tool(sessionTool)},
	}
	if w.model != nil {
		c.Provider, c.Model = w.model.provider(), proto.String("scripted")
	}
	return c
}

func tool(name string) *cliv1.ToolDefinition {
	return &cliv1.ToolDefinition{
		Name: name, Description: "answers",
		ParametersJson: proto.String(`{"type":"object","properties":{"q":{"type":"string"}}}`),
	}
}

// prompt draws something to say.
func (w *world) prompt(s step) (*prompt, *bridgev1.Prompt) {
	of := flavours
	if w.plan.real() {
		of = realFlavours
	}
	return w.say(w.conversation(s.pick[0]), of[int(s.pick[2])%len(of)], s.pick[3]%5 == 0)
}

func (w *world) say(to *conversation, flavour string, immediate bool) (*prompt, *bridgev1.Prompt) {
	p := w.prompts.add(to)
	w.rec.logf("say %q to session %d", flavour+" "+p.word, to.n)
	out := &bridgev1.Prompt{Text: flavour + " " + p.word}
	if immediate {
		out.Mode = cliv1.SendMode_SEND_MODE_IMMEDIATE
	}
	return p, out
}

// begun notes the id of a message.
func (p *prompt) begun(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.messages[id] = true
}

// ended notes how a turn ended.
func (p *prompt) ended(o *bridgev1.TurnOutcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.completed = p.completed || o.GetStatus() == bridgev1.TurnStatus_TURN_STATUS_COMPLETED
}

func (w *world) send(s step) {
	p, text := w.prompt(s)
	request := &bridgev1.SendRequest{RequestId: "send-" + p.word, SessionId: p.session.id, Prompt: text}
	a := w.calls.asking("Send", func(ctx context.Context, by *caller) (string, error) {
		r, err := by.sessions.Send(ctx, request)
		if err == nil {
			p.begun(r.GetMessageId())
		}
		return r.GetMessageId(), err
	})
	c := w.caller(s.pick[1])
	w.calls.running.Go(func() { _ = w.calls.ask(c, a) })
}

func (w *world) sendAndWait(s step) {
	p, text := w.prompt(s)
	request := &bridgev1.SendAndWaitRequest{RequestId: "wait-" + p.word, SessionId: p.session.id, Prompt: text}
	if s.pick[3]%4 == 1 {
		request.Timeout = durationpb.New(50 * time.Millisecond)
	}
	a := w.calls.asking("SendAndWait", func(ctx context.Context, by *caller) (string, error) {
		r, err := by.sessions.SendAndWait(ctx, request)
		if err == nil {
			p.begun(r.GetMessageId())
			p.ended(r.GetOutcome())
			w.rec.outcome(r.GetOutcome())
		}
		return r.GetMessageId(), err
	})
	c := w.caller(s.pick[1])
	w.calls.running.Go(func() { _ = w.calls.ask(c, a) })
}

func (w *world) run(s step) {
	p, text := w.prompt(s)
	c, begin := w.caller(s.pick[1]), time.Now()
	w.calls.start("Run", func(ctx context.Context) error {
		stream, err := c.sessions.Run(ctx, &bridgev1.RunRequest{
			RequestId: "run-" + p.word, Session: &bridgev1.RunRequest_SessionId{SessionId: p.session.id}, Prompt: text,
		})
		if err != nil {
			return err
		}
		var outcome *bridgev1.TurnOutcome
		for {
			r, err := stream.Recv()
			switch {
			case err == io.EOF && outcome == nil:
				w.rec.violated("Run of %s ended well after %v, without an outcome", p.word, time.Since(begin))
				return nil
			case err == io.EOF:
				return nil
			case err != nil:
				return err
			}
			if started := r.GetStarted(); started != nil {
				p.begun(started.GetMessageId())
			}
			if o := r.GetOutcome(); o != nil {
				outcome = o
				p.ended(o)
				w.rec.outcome(o)
			}
		}
	})
}

func (w *world) abort(s step) {
	c, to := w.caller(s.pick[1]), w.conversation(s.pick[0])
	w.calls.start("Abort", func(ctx context.Context) error {
		_, err := c.sessions.Abort(ctx, &bridgev1.AbortRequest{SessionId: to.id})
		return err
	})
}

func (w *world) logEvent(s step) {
	c, to := w.caller(s.pick[1]), w.conversation(s.pick[0])
	w.calls.start("Log", func(ctx context.Context) error {
		_, err := c.sessions.WriteLog(ctx,
			&bridgev1.WriteLogRequest{SessionId: to.id, Message: "noted", Ephemeral: s.pick[2]%2 == 0})
		return err
	})
}

func (w *world) setModel(s step) {
	c, to := w.caller(s.pick[1]), w.conversation(s.pick[0])
	w.calls.start("SetModel", func(ctx context.Context) error {
		_, err := c.sessions.SetModel(ctx,
			&bridgev1.SetModelRequest{SessionId: to.id, ModelId: fmt.Sprintf("model-%d", s.pick[2]%3)})
		return err
	})
}

// look reads something.
func (w *world) look(s step) {
	c, to := w.caller(s.pick[1]), w.conversation(s.pick[0])
	switch s.pick[2] % 3 {
	case 0:
		w.calls.start("GetSession", func(ctx context.Context) error {
			_, err := c.sessions.GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: to.id})
			return err
		})
	case 1:
		w.calls.start("ListSessions", func(ctx context.Context) error {
			_, err := c.sessions.ListSessions(ctx, &bridgev1.ListSessionsRequest{})
			return err
		})
	default:
		w.calls.start("ListEvents", func(ctx context.Context) error {
			_, err := c.sessions.ListEvents(ctx, &bridgev1.ListEventsRequest{SessionId: to.id, PageBytes: 64 << 10})
			return err
		})
	}
}

// disconnect ends the use of a session for all, and begins it again.
func (w *world) disconnect(s step) {
	c, to := w.caller(s.pick[1]), w.conversation(s.pick[0])
	w.calls.running.Go(func() {
		_ = w.calls.do("DisconnectSession", func(ctx context.Context) error {
			_, err := c.sessions.DisconnectSession(ctx,
				&bridgev1.DisconnectSessionRequest{SessionId: to.id, Force: true})
			return err
		})
		w.reopen(c, to, s.pick[2]%2 == 0)
	})
}

func (w *world) resume(s step) {
	c, to := w.caller(s.pick[1]), w.conversation(s.pick[0])
	w.calls.running.Go(func() { w.reopen(c, to, s.pick[2]%2 == 0) })
}

func (w *world) reopen(c *caller, to *conversation, continuing bool) {
	_ = w.calls.do("ResumeSession", func(ctx context.Context) error {
		r := &bridgev1.ResumeSessionRequest{SessionId: to.id, ContinuePendingWork: continuing}
		if w.model != nil {
			r.Config = &cliv1.SessionConfig{Provider: w.model.provider()}
		}
		_, err := c.sessions.ResumeSession(ctx, r)
		return err
	})
}

// throwAway makes a session, says something to it, and deletes it.
func (w *world) throwAway(s step) {
	c := w.caller(s.pick[1])
	w.calls.running.Go(func() {
		var id string
		err := w.calls.do("CreateSession", func(ctx context.Context) error {
			r, err := c.sessions.CreateSession(ctx, &bridgev1.CreateSessionRequest{Config: w.config()})
			id = r.GetSession().GetSessionId()
			return err
		})
		if err == nil {
			_ = w.calls.do("Send", func(ctx context.Context) error {
				_, err := c.sessions.Send(ctx,
					&bridgev1.SendRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: "text of no use"}})
				return err
			})
			err = w.calls.do("DeleteSession", func(ctx context.Context) error {
				_, err := c.sessions.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: id})
				return err
			})
		}
		if err != nil { // it may be there yet
			w.abandoned.Add(1)
		}
	})
}
