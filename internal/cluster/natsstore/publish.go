package natsstore

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

const (
	// attemptTimeout bounds one attempt of a call: the server to which it went may have died since.
	attemptTimeout = 3 * time.Second
	// retryWait is the time between attempts.
	retryWait = 20 * time.Millisecond
	// duplicateWindow is how long the servers know the ids of messages.
	duplicateWindow = time.Minute
)

// publish stores a message. It tries again until ctx ends if the outcome of an attempt is not known, or if another
// write to the compared subject is not stored yet. The server stores one of the attempts: they have the same id, and
// none can arrive later than duplicateWindow.
func (s *Store) publish(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (uint64, error) {
	opts = append(opts, jetstream.WithMsgID(nuid.Next()))
	ack, err := retried(ctx, func(ctx context.Context) (*jetstream.PubAck, error) {
		return s.js.PublishMsg(ctx, m, opts...)
	})
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// isUnanswered reports whether a call failed because no answer came, no leader was there to give one, or another write is
// not stored yet.
func isUnanswered(err error) bool {
	switch codeOf(err) {
	case notAvailable, wrongLastInFlight, duplicateInFlight:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders)
}

// retried repeats a call until an answer comes or ctx ends. The call must be harmless when it is repeated.
func retried[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		out, err := f(attempt)
		cancel()
		if err == nil || !isUnanswered(err) {
			return out, err
		}
		select {
		case <-time.After(retryWait):
		case <-ctx.Done():
			return out, err
		}
	}
}

// lastOf returns the last message of a subject, nil if it has none.
func lastOf(ctx context.Context, stream jetstream.Stream, subject string) (*jetstream.RawStreamMsg, error) {
	return found(retried(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return stream.GetLastMsgForSubject(ctx, subject)
	}))
}

// nextOf returns the first message of the subjects of a filter from a sequence number on, nil if there is none.
func nextOf(ctx context.Context, stream jetstream.Stream, from uint64, filter string) (*jetstream.RawStreamMsg, error) {
	return found(retried(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return stream.GetMsg(ctx, max(from, 1), jetstream.WithGetMsgSubject(filter))
	}))
}

// purge removes the messages of the subjects of a filter whose sequence numbers are smaller than before.
func purge(ctx context.Context, stream jetstream.Stream, filter string, before uint64) error {
	_, err := retried(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, stream.Purge(ctx, jetstream.WithPurgeSubject(filter), jetstream.WithPurgeSequence(before))
	})
	return err
}

func found(m *jetstream.RawStreamMsg, err error) (*jetstream.RawStreamMsg, error) {
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return m, err
}

// walk calls f for the messages of the subjects of a filter, in order, until f returns an error.
func walk(
	ctx context.Context, stream jetstream.Stream, filter string, f func(*jetstream.RawStreamMsg) error,
) error {
	for from := uint64(1); ; {
		m, err := nextOf(ctx, stream, from, filter)
		if m == nil || err != nil {
			return err
		}
		if err := f(m); err != nil {
			return err
		}
		from = m.Sequence + 1
	}
}
