package natsstore

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// openEpochs opens the stream whose sequence numbers are the epochs. It begins with the time in milliseconds, so that
// epochs grow also after the stream was lost, and are later than the epochs of data directories, which are such times.
func (s *Store) openEpochs(ctx context.Context) error {
	_, err := s.openStream(ctx, jetstream.StreamConfig{
		Name: s.names.stream("epoch"), Subjects: []string{s.names.subject("epoch")}, Description: "epochs of journals",
		MaxMsgs: 1, FirstSeq: uint64(time.Now().UnixMilli()),
	})
	return err
}

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
