package offlinemodel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// errDrop is returned when the script breaks the connection off.
var errDrop = errors.New("the script drops the connection")

// player performs the steps of one reply.
type player struct {
	scope    *Scope
	request  *Request
	values   *values
	pace     Pace
	to       emitter
	onStart  func() // runs before the first byte
	started  bool
	events   *eventWriter // nil unless streaming
	open     bool         // a text or reasoning block is open
	kind     blockKind    // of the open block
	calls    int
	spoken   int // bytes of text, reasoning and arguments
	reasoned int // bytes of reasoning
}

func (p *player) play(ctx context.Context, rule *compiledRule) error {
	for i := range rule.rule.Reply {
		if err := p.step(ctx, &rule.rule.Reply[i]); err != nil {
			return err
		}
	}
	p.start()
	p.close()
	p.to.finish(p.finishReason(rule.rule), p.usage(rule.rule))
	p.flush()
	return p.connectionError()
}

func (p *player) step(ctx context.Context, step *Step) error {
	var err error
	switch {
	case step.Text != "":
		err = p.speak(ctx, blockText, step)
	case step.Reasoning != "":
		err = p.speak(ctx, blockReasoning, step)
	case step.ToolCall != nil:
		err = p.call(ctx, step)
	case step.Wait > 0:
		p.flush()
		err = sleep(ctx, step.Wait)
	case step.WaitFor != "":
		p.flush()
		err = p.scope.passGate(ctx, step.WaitFor)
	case step.Hang:
		p.flush()
		<-ctx.Done()
		err = context.Cause(ctx)
	case step.Drop:
		p.flush()
		err = errDrop
	}
	if err != nil {
		return err
	}
	p.flush()
	return p.connectionError()
}

// start begins the reply when there is something to send: what a script does
// before that, the client sees as silence.
func (p *player) start() {
	if !p.started {
		p.started = true
		p.onStart()
		p.to.start()
	}
}

// speak sends a text or reasoning step. Consecutive steps of a kind make one
// block.
func (p *player) speak(ctx context.Context, kind blockKind, step *Step) error {
	p.start()
	if !p.open || p.kind != kind {
		p.close()
		p.open, p.kind = true, kind
		p.to.begin(block{kind: kind})
	}
	var text string
	counted := true
	for n := 1; n <= max(step.Repeat, 1); n++ {
		if counted {
			p.values.n = n
			text, counted = p.values.expand(step.Text + step.Reasoning)
		}
		if kind == blockReasoning {
			p.reasoned += len(text)
		}
		if err := p.deltas(ctx, step, text); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) call(ctx context.Context, step *Step) error {
	p.start()
	p.close()
	p.calls++
	p.to.begin(block{
		kind: blockToolCall, name: step.ToolCall.Name,
		id: cmp.Or(step.ToolCall.ID, fmt.Sprintf("call_%d_%d", p.request.Number, p.calls)),
	})
	if err := p.deltas(ctx, step, p.values.arguments(step.ToolCall.Arguments)); err != nil {
		return err
	}
	p.to.end()
	return nil
}

// deltas sends text in chunks at the step's pace.
func (p *player) deltas(ctx context.Context, step *Step, text string) error {
	size := cmp.Or(step.ChunkSize, p.pace.ChunkSize, defaultChunkSize)
	delay := cmp.Or(step.Delay, p.pace.Delay)
	p.spoken += len(text)
	for text != "" {
		end := chunkEnd(text, size)
		p.to.delta(text[:end])
		text = text[end:]
		if err := p.connectionError(); err != nil {
			return err
		}
		if delay > 0 && p.events != nil {
			p.flush()
			if err := sleep(ctx, delay); err != nil {
				return err
			}
		}
	}
	return nil
}

// chunkEnd is the length in bytes of the first n characters of a text.
func chunkEnd(text string, n int) int {
	if len(text) <= n {
		return len(text)
	}
	end := 0
	for ; n > 0 && end < len(text); n-- {
		_, width := utf8.DecodeRuneInString(text[end:])
		end += width
	}
	return end
}

// close ends the open block, if there is one.
func (p *player) close() {
	if p.open {
		p.open = false
		p.to.end()
	}
}

func (p *player) finishReason(rule *Rule) string {
	if rule.FinishReason != "" {
		return rule.FinishReason
	}
	if p.calls > 0 {
		return finishToolCalls
	}
	return finishStop
}

// usage is what the script says, or else a token for every four bytes.
func (p *player) usage(rule *Rule) Usage {
	if rule.Usage != nil {
		return *rule.Usage
	}
	const bytesPerToken = 4
	return Usage{
		InputTokens:     1 + len(p.request.Body)/bytesPerToken,
		OutputTokens:    1 + p.spoken/bytesPerToken,
		ReasoningTokens: p.reasoned / bytesPerToken,
	}
}

func (p *player) flush() {
	if p.events != nil && p.started {
		p.events.flush()
	}
}

func (p *player) connectionError() error {
	if p.events != nil {
		return p.events.err
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
