package fakecli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// streaming is on unless the session says otherwise.
func (a *answering) streaming() bool {
	a.session.cli.mu.Lock()
	defer a.session.cli.mu.Unlock()
	return a.session.config.Streaming == nil || *a.session.config.Streaming
}

// stream says a turn's text, and returns it whole.
func (a *answering) stream(t *Turn) (text, messageID string, err error) {
	a.session.cli.mu.Lock()
	messageID = a.session.cli.newID()
	a.session.cli.mu.Unlock()
	var pieces []string
	var d Deltas
	if t.Deltas != nil {
		d = *t.Deltas
		piece := strings.Repeat("x", max(1, d.Size))
		for range d.Count {
			pieces = append(pieces, piece)
		}
	}
	if t.Text != "" {
		pieces = append(pieces, strings.SplitAfter(strings.ReplaceAll(t.Text, "{{answer}}", a.told), " ")...)
	}
	if a.streaming() && len(pieces) > 0 {
		err = a.deltas(t, &d, messageID, pieces)
	}
	return strings.Join(pieces, ""), messageID, err
}

// deltas emits two events for each piece, as the real one does.
func (a *answering) deltas(t *Turn, d *Deltas, messageID string, pieces []string) error {
	begin := time.Now()
	said := 0
	var sent []sentEvent // what may be copied
	emitted := make([]time.Time, 0, len(pieces))
	for i, piece := range pieces {
		if i == len(pieces)/2 {
			a.strike(t.Fault, AtStream)
		}
		if err := a.pace(d, begin, i); err != nil {
			return err
		}
		said += len(piece)
		a.session.cli.mu.Lock()
		emitted = append(emitted, a.session.cli.opts.Now())
		a.session.behind.begin(d.Early, emitted)
		sent = a.ephemeral(d, sent, "assistant.streaming_delta",
			[]byte(`{"totalResponseSizeBytes":`+strconv.Itoa(said)+`}`))
		if i == 0 {
			a.session.emit("assistant.message_start", obj("messageId", messageID), true)
		}
		sent = a.ephemeral(d, sent, "assistant.message_delta", obj("messageId", messageID, "deltaContent", piece))
		a.session.behind.lag, a.session.behind.early = 0, false
		a.session.cli.mu.Unlock()
	}
	a.settle(d, sent)
	return nil
}

// pace keeps the rate, or waits while too much output is waiting.
func (a *answering) pace(d *Deltas, begin time.Time, i int) error {
	if d.Rate > 0 {
		timer := time.NewTimer(time.Until(begin.Add(time.Duration(float64(i) / d.Rate * float64(time.Second)))))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-a.ctx.Done():
		}
	} else if i%64 == 0 {
		a.session.cli.mu.Lock()
		joined := slices.Clone(a.session.joined)
		a.session.cli.mu.Unlock()
		for _, k := range joined {
			k.out.waitBelow(a.session.cli.opts.Backlog)
		}
	}
	return context.Cause(a.ctx)
}

// ephemeral emits an event of the stream, and sends the copy that is due. The
// lock is held.
func (a *answering) ephemeral(d *Deltas, sent []sentEvent, kind string, data []byte) []sentEvent {
	a.session.emit(kind, data, true)
	if d.Copies == nil {
		return sent
	}
	sent = append(sent, a.session.latest)
	if due := len(sent) - 1 - d.Copies.After; due >= 0 && d.Copies.takes(due) {
		a.session.copy(sent[due])
		sent[due] = sentEvent{}
	}
	return sent
}

// takes reports whether the n-th event of a stream gets a copy.
func (c *Copies) takes(n int) bool { return n%max(1, c.Every) == 0 }

// A burst is so many pieces in that time, and early pieces come while the oldest that waits has
// waited for so long.
const (
	burstPieces    = 1024
	burstTime      = time.Second
	minLag, maxLag = 500 * time.Millisecond, time.Second
)

// unsent is what a CLI that has fallen behind in a burst has not sent yet, oldest first.
type unsent struct {
	frames []waiting
	lag    time.Duration // how long they wait; 0: the event that comes is none of the burst
	piece  int           // of which the event that comes is
	early  bool          // the event that comes goes ahead of them
}

// waiting is an event, of which piece it is, and when it was emitted.
type waiting struct {
	frame []byte
	piece int
	since time.Time
}

// begin says what becomes of the events of a stream's last piece, given when each was emitted.
func (b *unsent) begin(e *Early, emitted []time.Time) {
	n := len(emitted) - 1
	if e == nil || n < e.After {
		return
	}
	b.lag = time.Duration(e.LagMS) * time.Millisecond
	b.piece = n
	if len(b.frames) == 0 {
		return
	}
	oldest := b.frames[0] // all before it have been sent
	if oldest.piece < burstPieces || emitted[oldest.piece-1].Sub(emitted[oldest.piece-burstPieces]) > burstTime {
		return
	}
	waited := emitted[n].Sub(oldest.since)
	b.early = (n-e.After)%e.Every < max(1, e.Run) && waited >= minLag && waited <= maxLag
}

// deliver sends an event that was emitted now, at once or when the events before it have been sent. Events outside of
// the burst come behind all of it. The lock is held.
func (s *session) deliver(frame []byte, now time.Time) {
	b := &s.behind
	if b.early {
		s.push(frame)
		return
	}
	b.frames = append(b.frames, waiting{frame, b.piece, now})
	for len(b.frames) > 0 && now.Sub(b.frames[0].since) >= b.lag {
		s.push(b.frames[0].frame)
		b.frames = b.frames[1:]
	}
}

// push sends an event to the connections in the session. The lock is held.
func (s *session) push(frame []byte) {
	for _, k := range s.joined {
		k.out.push(frame)
	}
}

// settle sends the copies still due, or leaves them for after session.idle.
func (a *answering) settle(d *Deltas, sent []sentEvent) {
	if d.Copies == nil {
		return
	}
	a.session.cli.mu.Lock()
	defer a.session.cli.mu.Unlock()
	for i, e := range sent {
		switch {
		case e.id == "" || !d.Copies.takes(i):
		case d.Copies.PastIdle:
			a.session.late = append([]sentEvent{e}, a.session.late...)
		default:
			a.session.copy(e)
		}
	}
}

// copy sends an event a second time. The lock is held.
func (s *session) copy(e sentEvent) {
	if s.gone {
		return
	}
	s.cli.oracle.add(Entry{Kind: EntryCopy, Session: s.id, Type: e.kind, ID: e.id, Ephemeral: true})
	s.push(e.frame)
}
