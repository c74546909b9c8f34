package natsstore

import (
	"context"
	"encoding/json"
	"fmt"
)

// State is the saved state of a session.
type State struct {
	// Key is the session's key.
	Key string
	// Term is the term of the owner who saved it.
	Term uint64
	// Revision grows with every save.
	Revision uint64
	Data     json.RawMessage
}

// Save replaces the saved state.
func (o *Session) Save(ctx context.Context, state []byte) error {
	ctx, cancel := o.store.call(ctx)
	defer cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.replace(ctx, o.subject("state"), o.key, state); err != nil {
		return fmt.Errorf("saving the state of session %q: %w", o.key, err)
	}
	return nil
}

// State returns the saved state of a session of any owner; false if there is none.
func (s *Store) State(ctx context.Context, key string) (State, bool, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	c, err := read(ctx, s.sessions, s.names.subject("session", token(key), "state"))
	if err == nil && c.exists && c.name != key {
		err = fmt.Errorf("it is that of session %q", c.name)
	}
	if err != nil {
		return State{}, false, fmt.Errorf("reading the state of session %q: %w", key, err)
	}
	return c.state(), c.exists, nil
}

func (c *content) state() State {
	return State{Key: c.name, Term: c.term, Revision: c.revision, Data: c.data}
}

// States calls f for the saved states of all sessions, in no order, until f returns an error. It ends with ctx.
func (s *Store) States(ctx context.Context, f func(State) error) error {
	all, err := readAll(ctx, s.sessions, s.names.subject("session", "*", "state"))
	if err != nil {
		return fmt.Errorf("reading the states of all sessions: %w", err)
	}
	for _, c := range all {
		if err := f(c.state()); err != nil {
			return err
		}
	}
	return nil
}
