package natsstore

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
)

// SaveUsage replaces one part of what the deleted sessions of a tenant have used. Each node writes the part with its
// name, so that no node overwrites what another has saved. Calls for one part must not overlap.
func (s *Store) SaveUsage(ctx context.Context, tenant, part string, rows []byte) error {
	ctx, cancel := s.call(ctx)
	defer cancel()
	m := nats.Msg{
		Subject: s.names.subject("usage", token(tenant), token(part)), Data: rows, Header: header(part, 0),
	}
	put := func(ctx context.Context, m *nats.Msg) (uint64, error) { return s.publish(ctx, m) }
	if err := s.replace(ctx, s.usage, m, put); err != nil {
		return fmt.Errorf("saving the usage of tenant %q: %w", tenant, err)
	}
	return nil
}

// Usage returns the parts of what the deleted sessions of a tenant have used, by name.
func (s *Store) Usage(ctx context.Context, tenant string) (map[string]json.RawMessage, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	all, err := readAll(ctx, s.usage, s.names.subject("usage", token(tenant), "*"))
	if err != nil {
		return nil, fmt.Errorf("reading the usage of tenant %q: %w", tenant, err)
	}
	parts := map[string]json.RawMessage{}
	for _, c := range all {
		parts[c.name] = c.data
	}
	return parts, nil
}
