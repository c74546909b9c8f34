package policy

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/refile"
)

// Store has the policy in force, and reads it anew when its files change.
type Store struct {
	log     *slog.Logger
	now     func() time.Time
	current atomic.Pointer[Policy]
	check   func(*Policy) error
	// changed are told of each policy that comes into force; mu orders them.
	mu      sync.Mutex
	changed []func(*Policy)
}

// OnChange has f told of each policy that comes into force from now on, in their order. It
// must not wait for anybody.
func (s *Store) OnChange(f func(*Policy)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = append(s.changed, f)
}

// Check has f look at each policy that Reload has read: one that it does not like is a bad
// one. It is to be called before the Store is used.
func (s *Store) Check(f func(*Policy) error) { s.check = f }

// Open reads the policy file. It fails where that is bad: only a policy that was good once
// stays in force when its file turns bad.
func Open(path string, log *slog.Logger, now func() time.Time) (*Store, error) {
	s := &Store{log: log, now: now}
	p, err := Load(path, now)
	if err != nil {
		return nil, err
	}
	s.current.Store(p)
	return s, nil
}

// Use puts another policy into force, from now on read from its own file.
func (s *Store) Use(p *Policy) { s.replace(p) }

// Current returns the policy in force.
func (s *Store) Current() *Policy { return s.current.Load() }

// Reload reads the files anew. Bad ones leave the policy in force that is.
func (s *Store) Reload() error {
	p, err := Load(s.Current().Path(), s.now)
	if err == nil && s.check != nil {
		err = s.check(p)
	}
	if err != nil {
		s.log.Error("policy not reloaded, the one before stays in force", slog.Any("error", err))
		return err
	}
	s.replace(p)
	return nil
}

func (s *Store) replace(p *Policy) {
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
	refile.Watch(ctx, refile.Every, func() []string { return s.Current().files }, func() { _ = s.Reload() })
}
