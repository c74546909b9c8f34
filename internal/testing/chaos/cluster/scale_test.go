package cluster

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

const (
	// scaleCallers is how many calls are made at a time.
	scaleCallers = 16
	// scaleTurns is how many turns are measured at each size, scaleSample how many sessions of a replica that was
	// killed are looked at all the time.
	scaleTurns, scaleSample = 1000, 100
	// scaleLimit bounds the return of all sessions.
	scaleLimit = 10 * time.Minute
)

// TestScale measures a cluster at growing numbers of sessions, and the return of the sessions of a killed replica.
func TestScale(t *testing.T) {
	most := int(number(t, "CLUSTER_SCALE", 0))
	if most == 0 {
		t.Skip("CLUSTER_SCALE says how many sessions there are: make bench-cluster")
	}
	s := &scale{
		world: &world{seed: 1, timing: fakeTiming}, t: t, servers: natstest.Cluster(t, servers, natstest.SyncAlways),
	}
	var urls []string
	for _, n := range s.servers {
		urls = append(urls, n.URL())
	}
	ca := servertest.NewCA(t)
	var supervisors sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); supervisors.Wait() }()
	for n := range replicas {
		r := newReplica(t, n, strings.Join(urls, ","), ca, s.fail,
			"--idle-unload", "5s", "--cluster-lease", "10s", "--log-level", "warn")
		s.replicas = append(s.replicas, r)
		t.Cleanup(func() { _ = r.conn.Close(); _ = os.RemoveAll(r.dir) })
		supervisors.Go(func() { r.supervise(ctx) })
		r.awaitServing(t.Context())
	}
	empty := s.rss()
	t.Log("| sessions | create, calls/s | p50, p99 | turn, calls/s | p50, p99 | messages/s | RSS | per session |")
	for _, n := range []int{most / 100, most / 10, most / 3, most} {
		created := s.create(n)
		before, begin := s.messages(), time.Now()
		turns := s.turns(s.names())
		rate := float64(s.messages()-before) / time.Since(begin).Seconds()
		rss := s.rss()
		t.Logf("| %d | %v | %v | %.0f | %.0f MB | %.1f KB |", n, created, turns, rate,
			float64(rss)/(1<<20), float64(rss-empty)/float64(n)/(1<<10))
	}
	s.failOver()
	for _, fault := range s.faults {
		t.Error(fault)
	}
}

// scale is a cluster that is measured.
type scale struct {
	*world

	t       *testing.T
	servers []*natstest.Server

	mu     sync.Mutex
	owners map[string]string // the replicas of the sessions
}

// calls is how long calls took.
type calls struct {
	times []time.Duration
	whole time.Duration
}

// String returns the rate and two percentiles, as cells of a table.
func (c calls) String() string {
	slices.Sort(c.times)
	at := func(part float64) time.Duration {
		return c.times[int(part*float64(len(c.times)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%.0f | %v, %v", float64(len(c.times))/c.whole.Seconds(), at(0.5), at(0.99))
}

// each makes a call for each name, several at a time, through replicas by turns.
func (s *scale) each(
	names []string, through []*replica, call func(ctx context.Context, r *replica, name string) error,
) calls {
	var out calls
	var mu sync.Mutex
	var callers sync.WaitGroup
	work := make(chan int)
	begin := time.Now()
	for range scaleCallers {
		callers.Go(func() {
			for i := range work {
				ctx, cancel := context.WithTimeout(s.t.Context(), patience)
				start := time.Now()
				err := call(ctx, through[i%len(through)], names[i])
				took := time.Since(start)
				cancel()
				if err != nil {
					s.fail("%s: %v", names[i], err)
				}
				mu.Lock()
				out.times = append(out.times, took)
				mu.Unlock()
			}
		})
	}
	for i := range names {
		work <- i
	}
	close(work)
	callers.Wait()
	out.whole = time.Since(begin)
	return out
}

// create creates sessions until there are so many.
func (s *scale) create(n int) calls {
	var names []string
	for i := len(s.owners); i < n; i++ {
		names = append(names, fmt.Sprint("s", i))
	}
	if s.owners == nil {
		s.owners = map[string]string{}
	}
	return s.each(names, s.replicas, func(ctx context.Context, r *replica, name string) error {
		var header metadata.MD
		_, err := r.sessions().CreateSession(ctx, &bridgev1.CreateSessionRequest{SessionId: name}, grpc.Header(&header))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.owners[name] = strings.Join(header.Get("copilot-owner-node"), "")
		return err
	})
}

// names returns the sessions in a random order, which is the same in each run.
func (s *scale) names() []string {
	names := make([]string, 0, len(s.owners))
	for name := range s.owners {
		names = append(names, name)
	}
	slices.Sort(names)
	rng := rand.New(rand.NewPCG(s.seed, uint64(len(names))))
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// turns has a turn in some sessions, through all replicas.
func (s *scale) turns(names []string) calls {
	return s.each(names[:min(len(names), scaleTurns)], s.alive(),
		func(ctx context.Context, r *replica, name string) error {
			_, err := r.sessions().SendAndWait(ctx,
				&bridgev1.SendAndWaitRequest{SessionId: name, Prompt: &bridgev1.Prompt{Text: "hello"}})
			return err
		})
}

// alive returns the replicas that run.
func (s *scale) alive() []*replica {
	return slices.DeleteFunc(slices.Clone(s.replicas), func(r *replica) bool { return r.pid() == 0 })
}

// pid returns the process of this life; 0 if there is none.
func (r *replica) pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return 0
	}
	return r.process.Pid
}

// rss returns the memory of all replicas in bytes, without their CLI processes.
func (s *scale) rss() (sum int) {
	for _, r := range s.replicas {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.pid()))
		if err != nil {
			continue // it does not run, or this is not Linux
		}
		for line := range bytes.Lines(text) {
			if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
				kb, _ := strconv.Atoi(strings.Fields(string(rest))[0])
				sum += kb << 10
			}
		}
	}
	return sum
}

// messages returns how many messages all streams of the cluster have received.
func (s *scale) messages() (sum uint64) {
	for info := range s.servers[0].JetStream().ListStreams(s.t.Context()).Info() {
		sum += lastOf(info)
	}
	return sum
}

func lastOf(info *jetstream.StreamInfo) uint64 { return info.State.LastSeq }

// failOver kills a replica and waits until its sessions are served by the others.
func (s *scale) failOver() {
	killed := s.replicas[0]
	var moved []string
	for _, name := range s.names() {
		if s.owners[name] == fmt.Sprint("r", killed.n) {
			moved = append(moved, name)
		}
	}
	begin := time.Now()
	killed.signal(syscall.SIGKILL, time.Hour)
	through := s.replicas[1:]
	served := func(ctx context.Context, r *replica, name string) error {
		for {
			try, cancel := context.WithTimeout(ctx, 5*time.Second)
			_, err := r.sessions().GetSession(try, &bridgev1.GetSessionRequest{SessionId: name})
			cancel()
			if err == nil {
				return nil
			}
			if time.Since(begin) > scaleLimit {
				return err
			}
			pause(s.t.Context(), 250*time.Millisecond)
		}
	}
	var watched sync.WaitGroup
	var mu sync.Mutex
	var back calls
	for i, name := range moved[:min(len(moved), scaleSample)] {
		watched.Go(func() {
			if err := served(s.t.Context(), through[i%len(through)], name); err != nil {
				s.fail("%s: %v", name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			back.times = append(back.times, time.Since(begin))
		})
	}
	watched.Wait()
	slices.Sort(back.times)
	all := s.each(moved, through, func(_ context.Context, r *replica, name string) error {
		return served(s.t.Context(), r, name)
	})
	n := len(back.times)
	s.t.Logf("%d sessions of a killed replica, lease 10 s: of a sample the first is served after %v, half after %v, "+
		"the last after %v; all after %v", len(moved), back.times[0].Round(time.Millisecond),
		back.times[n/2].Round(time.Millisecond), back.times[n-1].Round(time.Millisecond),
		time.Since(begin).Round(time.Millisecond))
	s.t.Logf("asking for each of them: %v", all)
	s.t.Logf("turns in them: %v", s.turns(moved))
}
