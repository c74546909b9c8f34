package natsstore

import (
	"context"
	"encoding/json"
	"fmt"
)

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
func (s *Store) State(ctx context.Context, key string) (state json.RawMessage, found bool, err error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	c, err := read(ctx, s.sessions, s.names.subject("session", token(key), "state"))
	if err == nil && c.exists && c.name != key {
		err = fmt.Errorf("it is that of session %q", c.name)
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading the state of session %q: %w", key, err)
	}
	return c.data, c.exists, nil
}
