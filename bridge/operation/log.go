package operation

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// sweepInterval is how often expired answers are removed.
const sweepInterval = time.Minute

// Restore makes the runner log its operations and restores the operations of the previous process. Call it
// before the first Run. With a nil log, operations are in memory only.
func (r *Runner) Restore(log backend.Requests, requests []backend.Request) {
	if log != nil {
		r.answers.Keep(&requestLog{Requests: log, log: r.log})
	}
	r.answers.Remember(func(yield func(idempotency.Remembered) bool) {
		for i, q := range requests {
			requests[i] = backend.Request{} // frees memory early: there may be many
			restored, err := remembered(q)
			if err != nil {
				r.log.Warn("a remembered answer could not be read", "type", q.Type, "error", err)
			} else if !yield(restored) {
				return
			}
		}
	})
}

// Sweep removes expired answers and compacts the log every minute until ctx ends.
func (r *Runner) Sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		if err := r.answers.Sweep(ctx); err != nil {
			r.log.Warn("the log of requests was not compacted", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close closes the log.
func (r *Runner) Close() error { return r.answers.Close() }

// requestLog keeps operations in the bridge's directory.
type requestLog struct {
	backend.Requests
	log *slog.Logger
	// failing is set from a write that failed until the next one that does not.
	failing atomic.Bool
}

// finder is a log of requests of several processes.
type finder interface {
	Find(ctx context.Context, key backend.Key) (backend.Request, bool, error)
}

// Find implements idempotency.Finder. The requests about a session are read with the session.
func (l *requestLog) Find(key backend.Key) (r idempotency.Remembered, found bool, err error) {
	shared, ok := l.Requests.(finder)
	if !ok || strings.Contains(key.Operation, "\x00") {
		return r, false, nil
	}
	q, found, err := shared.Find(context.Background(), key)
	if err != nil || !found {
		return r, false, err
	}
	r, err = remembered(q)
	return r, err == nil, err
}

// Begun implements idempotency.Log.
func (l *requestLog) Begun(key backend.Key, request []byte, expires time.Time, since []byte) error {
	return l.report(l.Add(backend.Request{Key: key, Sum: request, Expires: expires, Since: since}))
}

// Ended implements idempotency.Log.
func (l *requestLog) Ended(key backend.Key, request []byte, expires time.Time, answer proto.Message) error {
	q := backend.Request{Key: key, Sum: request, Expires: expires, Over: answer == nil}
	if answer != nil {
		if started, ok := answer.(*bridgev1.AttachStarted); ok {
			bare := proto.Clone(started).(*bridgev1.AttachStarted)
			bare.ParticipantToken = "" // a secret; a participant that lost it joins anew
			answer = bare
		}
		var err error
		if q.Answer, err = proto.Marshal(answer); err != nil {
			return err
		}
		q.Type = string(answer.ProtoReflect().Descriptor().FullName())
	}
	return l.report(l.Add(q))
}

// Answer implements idempotency.Log.
func (l *requestLog) Answer(key backend.Key) (proto.Message, error) {
	name, text, err := l.Requests.Answer(key)
	if err != nil {
		return nil, err
	}
	return parseAnswer(name, text)
}

// report logs the first of several failures in a row.
func (l *requestLog) report(err error) error {
	if err == nil {
		l.failing.Store(false)
	} else if !l.failing.Swap(true) {
		l.log.Error("requests are not remembered beyond a restart", "error", err)
	}
	return err
}

func parseAnswer(name string, text []byte) (proto.Message, error) {
	mt, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		return nil, err
	}
	answer := mt.New().Interface()
	return answer, proto.Unmarshal(text, answer)
}

// remembered converts a request of the log.
func remembered(q backend.Request) (r idempotency.Remembered, err error) {
	r = idempotency.Remembered{
		Key: q.Key, Request: q.Sum, Expires: q.Expires, Bytes: q.Bytes, Since: q.Since, Old: q.Old,
		Logged: q.Type != "" && q.Bytes > backend.MaxInline,
	}
	if q.Type != "" && !r.Logged {
		r.Answer, err = parseAnswer(q.Type, q.Answer)
	}
	return r, err
}
