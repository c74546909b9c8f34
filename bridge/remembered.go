package bridge

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/caller"
	"github.com/copilot-grpc/copilot-grpc/internal/quota"
)

// sweepRequests is how often expired requests are forgotten.
const sweepRequests = time.Minute

// requestKey returns the key of a request of the caller's tenant.
func requestKey(ctx context.Context, operation, id string) idempotency.Key {
	return idempotency.Key{Tenant: caller.From(ctx).Tenant, Operation: operation, ID: id}
}

// operationOn returns the operation of a call about one session.
func operationOn(call, sessionID string) string { return call + "\x00" + sessionID }

// rememberedQuota returns what may be remembered for a tenant, and for all tenants together.
// A server without a limit for its host's owner has one for all together alone.
func (b *Bridge) rememberedQuota(tenant string) (own, all idempotency.Quota) {
	of := func(l quota.Limits, requests int, bytes int64) idempotency.Quota {
		return idempotency.Quota{Requests: cmp.Or(l.RememberedRequests, requests), Bytes: cmp.Or(l.RememberedBytes, bytes)}
	}
	all = of(b.overall(), idempotency.DefaultTotalRequests, idempotency.DefaultTotalBytes)
	if b.cfg.Tenant == nil {
		return of(b.limits(tenant), all.Requests, all.Bytes), all
	}
	return of(b.limits(tenant), idempotency.DefaultRequests, idempotency.DefaultBytes), all
}

// requestLog keeps requests that may come again in the bridge's directory.
type requestLog struct {
	*store.Requests
	b *Bridge
	// failing is set from a write that failed until the next one that does not.
	failing atomic.Bool
}

// Begun implements idempotency.Log.
func (l *requestLog) Begun(key idempotency.Key, request []byte, expires time.Time, since []byte) error {
	return l.report(l.Add(store.Request{Key: key, Sum: request, Expires: expires, Since: since}))
}

// Ended implements idempotency.Log.
func (l *requestLog) Ended(key idempotency.Key, request []byte, expires time.Time, answer proto.Message) error {
	q := store.Request{Key: key, Sum: request, Expires: expires, Over: answer == nil}
	if answer != nil {
		if started, ok := answer.(*bridgev1.AttachStarted); ok {
			bare := proto.Clone(started).(*bridgev1.AttachStarted)
			bare.Token = "" // a secret; who lost it joins anew
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
func (l *requestLog) Answer(key idempotency.Key) (proto.Message, error) {
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
		l.b.log.Error("requests are not remembered beyond a restart", "error", err)
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

// remember takes up the requests of the bridge's last run.
func (b *Bridge) remember() error {
	if b.cfg.Directory == nil {
		return nil
	}
	log, requests, err := b.cfg.Directory.Requests()
	if err != nil {
		return err
	}
	b.once.Keep(&requestLog{Requests: log, b: b})
	b.once.Remember(func(yield func(idempotency.Remembered) bool) {
		for i, q := range requests {
			requests[i] = store.Request{} // there may be many
			r, err := rememberedOf(q)
			if err != nil {
				b.log.Warn("a remembered answer could not be read", "type", q.Type, "error", err)
			} else if !yield(r) {
				return
			}
		}
	})
	return nil
}

// rememberedOf returns what the log has of a request.
func rememberedOf(q store.Request) (r idempotency.Remembered, err error) {
	r = idempotency.Remembered{
		Key: q.Key, Request: q.Sum, Expires: q.Expires, Bytes: q.Bytes, Since: q.Since, Old: q.Old,
		Logged: q.Type != "" && q.Bytes > idempotency.MaxInline,
	}
	if q.Type != "" && !r.Logged {
		r.Answer, err = parseAnswer(q.Type, q.Answer)
	}
	return r, err
}

// sweepRequests forgets expired requests, and keeps their log small, until ctx ends.
func (b *Bridge) sweepRequests(ctx context.Context) {
	ticker := time.NewTicker(sweepRequests)
	defer ticker.Stop()
	for {
		if err := b.once.Sweep(ctx); err != nil {
			b.log.Warn("the log of requests was not compacted", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
