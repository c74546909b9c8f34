package idempotency

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// sweepInterval is how often expired answers are removed.
const sweepInterval = time.Minute

// Restore makes the runner log its operations, and adds the requests of an earlier process, ordered by expiry. Requests
// from before there were quotas are removed if they exceed them, oldest first; all others stay. With a nil log the runner
// keeps the one that it has.
func (r *Runner) Restore(log backend.Requests, requests []backend.Request) {
	if log != nil {
		r.requests = log
	}
	r.mu.Lock()
	for i, q := range requests {
		requests[i] = backend.Request{} // frees memory early: there may be many
		e, err := entryOf(q)
		if err != nil {
			r.log.Warn("a remembered answer could not be read", "type", q.Type, "error", err)
			continue
		}
		r.put(e)
		r.resize(e, q.Bytes)
	}
	dropped := r.giveWay()
	r.mu.Unlock()
	r.forget(dropped)
}

// closed is the channel of requests that ended in an earlier process.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// entryOf returns the entry of a request of the log.
func entryOf(q backend.Request) (e *entry, err error) {
	e = &entry{key: q.Key, expires: q.Expires, done: closed, since: q.Since, old: q.Old, doubt: q.Type == ""}
	copy(e.request[:], q.Sum)
	switch {
	case e.doubt:
	case q.Bytes > backend.MaxInline:
		e.logged = true
	default:
		e.answer, err = parseAnswer(q.Type, q.Answer)
	}
	return e, err
}

func parseAnswer(name string, text []byte) (proto.Message, error) {
	mt, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		return nil, err
	}
	answer := mt.New().Interface()
	return answer, proto.Unmarshal(text, answer)
}

// writeAnswer writes the answer of an entry to the log, and reports whether the log has it.
func (r *Runner) writeAnswer(e *entry) bool {
	answer := e.answer
	if started, ok := answer.(*bridgev1.AttachStarted); ok {
		bare := proto.Clone(started).(*bridgev1.AttachStarted)
		bare.ParticipantToken = "" // a secret; a participant that lost it joins anew
		answer = bare
	}
	text, err := proto.Marshal(answer)
	return err == nil && r.write(backend.Request{
		Key: e.key, Sum: e.request[:], Expires: e.expires,
		Type: string(answer.ProtoReflect().Descriptor().FullName()), Answer: text,
	})
}

// write adds a record to the log, if there is one, and reports whether the log has it. Of several failures in a row, write
// reports the first to the operator.
func (r *Runner) write(q backend.Request) bool {
	if r.requests == nil {
		return false
	}
	err := r.requests.Add(q)
	if err == nil {
		r.failing.Store(false)
	} else if !r.failing.Swap(true) {
		r.log.Error("requests are not remembered beyond a restart", "error", err)
	}
	return err == nil
}

// Sweep removes expired answers and compacts the log every minute until ctx ends.
func (r *Runner) Sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		if err := r.sweep(ctx); err != nil {
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
func (r *Runner) Close() error {
	if r.requests == nil {
		return nil
	}
	return r.requests.Close()
}
