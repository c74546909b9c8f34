// Package jsapi makes the requests to a JetStream stream that the client library has no calls for, or none without
// stale answers. A subject of the stream belongs to one session; its messages are stored one behind the other.
package jsapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

const (
	// batchMessages and batchBytes bound the answer to one request for messages.
	batchMessages = 256
	batchBytes    = 1 << 20
	// retryPause is the pause before a request is made again.
	retryPause = 50 * time.Millisecond
)

// defaultTimeout is the default of Stream.Timeout.
const defaultTimeout = 5 * time.Second

// Stream makes the requests. It is safe for concurrent use.
type Stream struct {
	// JetStream is the connection.
	JetStream jetstream.JetStream
	// Name is the stream's name. It has AllowDirect.
	Name string
	// Timeout bounds a request. The default is 5 s.
	Timeout time.Duration
}

// Message is a message with its number in the stream and the time at which it was stored.
type Message struct {
	Seq  uint64
	At   time.Time
	Data []byte
}

// within bounds a request.
func (s *Stream) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(s.Timeout, defaultTimeout))
}

// prefix returns the prefix of the server's API for the connection.
func (s *Stream) prefix() string {
	o := s.JetStream.Options()
	switch {
	case o.APIPrefix != "":
		return o.APIPrefix
	case o.Domain != "":
		return "$JS." + o.Domain + ".API"
	}
	return "$JS.API"
}

// Publish stores a message behind the message with a number, which must be the subject's last one; 0 is for a subject
// without messages. It returns ErrStale if it is not. After any other error the message may be stored or not, or be
// stored later.
func (s *Stream) Publish(ctx context.Context, subject string, behind uint64, data []byte) (uint64, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	ack, err := s.JetStream.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data},
		jetstream.WithExpectStream(s.Name), jetstream.WithExpectLastSequencePerSubject(behind),
		jetstream.WithRetryAttempts(0))
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return 0, backend.ErrStale
	}
	if err != nil {
		return 0, fmt.Errorf("storing a message: %w", err)
	}
	return ack.Sequence, nil
}

// Purge removes the messages of a subject, which may have wildcards, before a number; 0 removes all.
func (s *Stream) Purge(ctx context.Context, subject string, before uint64) error {
	request := struct {
		Filter string `json:"filter"`
		Seq    uint64 `json:"seq,omitempty"`
	}{subject, before}
	if err := s.ask(ctx, "STREAM.PURGE", request, nil); err != nil {
		return fmt.Errorf("purging messages: %w", err)
	}
	return nil
}

// Last returns the last message of a subject, with the number 0 if there is none. The stream's leader answers: a
// replica may not have the message yet.
func (s *Stream) Last(ctx context.Context, subject string) (Message, error) {
	request := struct {
		Subject string `json:"last_by_subj"`
	}{subject}
	var answer struct {
		Message struct {
			Seq  uint64    `json:"seq"`
			Time time.Time `json:"time"`
			Data []byte    `json:"data"`
		} `json:"message"`
	}
	err := s.ask(ctx, "STREAM.MSG.GET", request, &answer)
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == jetstream.JSErrCodeMessageNotFound {
		return Message{}, nil
	}
	if err != nil {
		return Message{}, fmt.Errorf("reading the last message: %w", err)
	}
	return Message{answer.Message.Seq, answer.Message.Time, answer.Message.Data}, nil
}

// ask makes a request to the stream's leader, and decodes the answer.
func (s *Stream) ask(ctx context.Context, method string, request, answer any) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	reply, err := s.JetStream.Conn().RequestWithContext(ctx, s.prefix()+"."+method+"."+s.Name, text)
	if err != nil {
		return err
	}
	var failed struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &failed); err != nil {
		return err
	}
	if failed.Error != nil {
		return failed.Error
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(reply.Data, answer)
}

// Scan gives the messages of a subject from one number to another, which exists or is purged, to a function until that
// returns false. It asks again, until ctx ends, while the server is away or the replica that answers does not have the
// last messages yet. Purged messages are left out. The data are valid after the call.
func (s *Stream) Scan(ctx context.Context, subject string, from, through uint64, f func(Message) bool) error {
	for from <= through {
		next, more, err := s.batch(ctx, subject, from, through, f)
		if err == nil && !more {
			return nil
		}
		if err != nil && (ctx.Err() != nil || !temporary(err)) {
			return err
		}
		if next == from {
			select {
			case <-time.After(retryPause):
			case <-ctx.Done():
				return fmt.Errorf("messages %d to %d do not come: %w", from, through, errors.Join(err, ctx.Err()))
			}
		}
		from = next
	}
	return nil
}

// temporary reports whether a request may succeed later.
func temporary(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrDisconnected) || errors.Is(err, errServer)
}

// errServer reports an answer of the server that is none.
var errServer = errors.New("the server cannot answer")

// batch requests the next messages of a subject. It returns the number to continue at, and whether there may be more.
func (s *Stream) batch(ctx context.Context, subject string, from, through uint64, f func(Message) bool) (
	next uint64, more bool, err error,
) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	request, err := json.Marshal(map[string]any{
		"seq": from, "next_by_subj": subject, "batch": batchMessages, "max_bytes": batchBytes,
	})
	if err != nil {
		return from, false, err
	}
	conn := s.JetStream.Conn()
	inbox := conn.NewRespInbox()
	replies, err := conn.SubscribeSync(inbox)
	if err != nil {
		return from, false, err
	}
	defer func() { _ = replies.Unsubscribe() }() // the connection has ended otherwise
	if err := conn.PublishRequest(s.prefix()+".DIRECT.GET."+s.Name, inbox, request); err != nil {
		return from, false, err
	}
	for {
		reply, err := replies.NextMsgWithContext(ctx)
		if err != nil {
			return from, true, fmt.Errorf("reading messages: %w", err)
		}
		if status := reply.Header.Get("Status"); status != "" {
			return s.status(ctx, reply, subject, from)
		}
		m, err := parseMessage(reply)
		if err != nil {
			return from, false, err
		}
		if m.Seq > through {
			return from, false, nil
		}
		from = m.Seq + 1
		if !f(m) || m.Seq == through {
			return from, false, nil
		}
	}
}

// status reads the end of an answer: 204 behind messages, 404 if there are none.
func (s *Stream) status(ctx context.Context, reply *nats.Msg, subject string, from uint64) (uint64, bool, error) {
	text := reply.Header.Get("Description")
	switch status := reply.Header.Get("Status"); status {
	case "204":
		return from, true, nil
	case "404": // the replica that answered may be behind, or the rest is purged
		last, err := s.Last(ctx, subject)
		return from, err != nil || last.Seq >= from, err
	case "503":
		return from, true, nats.ErrNoResponders
	case "408", "413":
		return from, false, fmt.Errorf("the server refuses to read messages: %s %s", status, text)
	default:
		return from, true, fmt.Errorf("%w: %s %s", errServer, status, text)
	}
}

// parseMessage reads a message of an answer.
func parseMessage(reply *nats.Msg) (Message, error) {
	seq, err := strconv.ParseUint(reply.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return Message{}, fmt.Errorf("an answer without the number of its message: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, reply.Header.Get(jetstream.TimeStampHeaer))
	if err != nil {
		return Message{}, fmt.Errorf("message %d has no time: %w", seq, err)
	}
	return Message{seq, at, reply.Data}, nil
}
