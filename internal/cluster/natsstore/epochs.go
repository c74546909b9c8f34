package natsstore

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
)

// NextEpoch returns a number that is greater than all that the cluster's stores have returned.
func (s *Store) NextEpoch(ctx context.Context) (uint64, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	epoch, err := s.publish(ctx, &nats.Msg{Subject: s.names.subject("epoch")})
	if err != nil {
		return 0, fmt.Errorf("reserving an epoch in NATS: %w", err)
	}
	return epoch, nil
}
