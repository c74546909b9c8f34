package policy

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/filewatch"
)

// Store has the current policy, and reloads it when its files change.
type Store struct {
	log     *slog.Logger
	now     func() time.Time
	current atomic.Pointer[Policy]
	check   func(*Policy) error
	// changed are called for each new policy; mu orders the calls.
	mu      sync.Mutex
	changed []func(*Policy)
}

// OnChange registers f, which is called in order for each policy that takes effect from now on. It must not block.
func (s *Store) OnChange(f func(*Policy)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = append(s.changed, f)
}

// Check registers f, which validates each policy that Reload reads: an error rejects the policy. It must be called
// before the Store is used.
func (s *Store) Check(f func(*Policy) error) { s.check = f }

// Open reads the policy file, and fails if it is invalid. Only later, an invalid file leaves the previous policy in
// force.
func Open(path string, log *slog.Logger, now func() time.Time) (*Store, error) {
	s := &Store{log: log, now: now}
	p, err := Load(path, now)
	if err != nil {
		return nil, err
	}
	s.current.Store(p)
	return s, nil
}

// Current returns the current policy.
func (s *Store) Current() *Policy { return s.current.Load() }

// Reload reads the files again. If they are invalid, the current policy stays in force.
func (s *Store) Reload() error {
	p, err := Load(s.Current().Path(), s.now)
	if err == nil && s.check != nil {
		err = s.check(p)
	}
	if err != nil {
		s.log.Error("reloading the policy failed, the old policy remains in force", slog.Any("error", err))
		return err
	}
	s.Use(p)
	return nil
}

// Use makes another policy current. Reload then reads that policy's file.
func (s *Store) Use(p *Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.Store(p)
	for _, f := range s.changed {
		f(p)
	}
	s.log.Info("policy reloaded", slog.String("path", p.Path()))
}

// Watch reloads whenever a file changes, until ctx ends.
func (s *Store) Watch(ctx context.Context) {
	filewatch.Watch(ctx, filewatch.Every, func() []string { return s.Current().files }, func() { _ = s.Reload() })
}
