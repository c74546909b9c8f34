package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// soakSessions are at work at once. Each has so many turns before another takes its
	// place: sessions come and go.
	soakSessions = 8
	soakTurns    = 250
	// soakSamples are taken of the memory.
	soakSamples = 50
	// soakGrowth is by how much the memory may grow from the second quarter of a soak to
	// the last.
	soakGrowth = 16 << 20
)

// sample is what the server's memory was after some turns.
type sample struct {
	turns int64
	rss   int64
	at    time.Duration
}

// soak is a server under ordinary load.
type soak struct {
	w     *world
	pid   int
	total int64

	turns, failed atomic.Int64

	mu      sync.Mutex
	samples []sample
}

// soakMain is -soak.
func (o options) soakMain(ctx context.Context, stdout, stderr io.Writer) int {
	s := &soak{total: int64(o.soak)}
	err := s.run(ctx, stdout)
	text, flat := s.report()
	_, _ = fmt.Fprint(stdout, text)
	if err == nil && o.out != "" {
		err = os.WriteFile(o.out, []byte(text), 0o600)
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
	}
	if err != nil || !flat || s.failed.Load() > 0 {
		return 1
	}
	return 0
}

func (s *soak) run(ctx context.Context, stdout io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.w = newWorld(ctx, Plan{Seed: 1, Soak: true})
	defer s.w.cancel()
	if s.w.dir, err = os.MkdirTemp("", "soak"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.w.dir)) }()
	p, err := newProcess(s.w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.start(); err != nil {
		return err
	}
	s.pid = p.cmd.Process.Pid
	var working sync.WaitGroup
	errs := make([]error, soakSessions)
	for i := range errs {
		working.Go(func() {
			if errs[i] = s.caller(i, stdout); errs[i] != nil {
				cancel()
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

// caller has one session after the other, on a separate connection.
func (s *soak) caller(n int, stdout io.Writer) error {
	c, err := newCaller(s.w, n)
	if err != nil {
		return err
	}
	defer c.close()
	for s.turns.Load() < s.total && s.w.ctx.Err() == nil {
		if err := s.session(c, stdout); err != nil {
			return err
		}
	}
	return s.w.ctx.Err()
}

// session is the life of one session: a participant answers the callbacks, a reader reads.
func (s *soak) session(c *caller, stdout io.Writer) error {
	ctx, cancel := context.WithCancel(s.w.ctx)
	defer cancel()
	created, err := c.sessions.CreateSession(ctx, &bridgev1.CreateSessionRequest{Config: s.w.config()})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	id := created.GetSession().GetSessionId()
	stream, err := c.callbacks.Attach(ctx)
	if err != nil {
		return err
	}
	err = stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: id}, Handlers: &bridgev1.Handlers{Permission: true},
	}}})
	if err != nil {
		return err
	}
	if _, err := stream.Recv(); err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	answering := make(chan struct{})
	go func() {
		defer close(answering)
		answerAll(stream)
	}()
	defer func() { <-answering }()
	defer cancel()
	for i := range soakTurns {
		if s.turns.Load() >= s.total {
			break
		}
		flavour := []string{"text", "text", "tool", "text", "text", "burst", "text", "text", "both", "text"}[i%10]
		request := &bridgev1.SendAndWaitRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: flavour + " please"}}
		if i%10 == 0 { // what is remembered for a day is no leak
			request.RequestId = fmt.Sprintf("%s-%d", id, i)
		}
		r, err := c.sessions.SendAndWait(ctx, request)
		if err != nil {
			return fmt.Errorf("turn %d of session %s: %w", i, id, err)
		}
		if r.GetOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
			s.failed.Add(1)
		}
		s.count(s.turns.Add(1), stdout)
	}
	_, err = c.sessions.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: id})
	return err
}

// answerAll answers everything until the stream ends.
func answerAll(stream attachStream) {
	for {
		f, err := stream.Recv()
		if err != nil {
			return
		}
		if r := f.GetStream().GetCallbackRequested(); r != nil {
			answer := &bridgev1.CallbackAnswer{
				CallbackId: r.GetCallback().GetCallbackId(), Answer: plainAnswer(true, r.GetCallback()),
			}
			// Receiving says why it failed.
			_ = stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{Answer: answer}})
		}
	}
}

// count takes a sample now and then.
func (s *soak) count(turns int64, stdout io.Writer) {
	if every := max(s.total/soakSamples, 1); turns%every != 0 {
		return
	}
	rss := residentSize(s.pid)
	at := time.Since(s.w.rec.begun)
	s.mu.Lock()
	s.samples = append(s.samples, sample{turns, rss, at})
	s.mu.Unlock()
	_, _ = fmt.Fprintf(stdout, "%8d turns  %8v  %6.1f MiB\n", turns, at.Round(time.Second), float64(rss)/(1<<20))
}

// residentSize is the memory of a process.
func residentSize(pid int) int64 {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	status, _ := p.NewStatus()
	return int64(status.VmRSS) //nolint:gosec // no machine has more
}

// report tells the memory over time, and whether it is flat.
func (s *soak) report() (text string, flat bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.samples)
	if n < 8 {
		return "too few turns to tell\n", false
	}
	mean := func(of []sample) (sum float64) {
		for _, one := range of {
			sum += float64(one.rss)
		}
		return sum / float64(len(of))
	}
	early, late := mean(s.samples[n/4:n/2]), mean(s.samples[n*3/4:])
	last := s.samples[n-1]
	flat = late-early < soakGrowth
	return fmt.Sprintf("%d turns in %v, %d not completed\nresident memory: %.1f MiB in the second quarter, %.1f MiB "+
		"in the last\n",
		last.turns, last.at.Round(time.Second), s.failed.Load(), early/(1<<20), late/(1<<20)), flat
}
