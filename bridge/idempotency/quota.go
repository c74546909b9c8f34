package idempotency

import (
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Quota bounds the stored requests. A zero field sets no bound.
type Quota struct {
	Requests int
	// Bytes bounds the size of the answers on the wire, plus Overhead for each request.
	Bytes int64
}

// Overhead is the counted size of a request without its answer, in bytes.
const Overhead = 512

// Default quotas.
const (
	DefaultRequests      = 200_000
	DefaultBytes         = 128 << 20
	DefaultTotalRequests = 400_000
	DefaultTotalBytes    = 256 << 20
)

// kindShare is the part of a tenant's quota that one kind of operations may use: half of it.
const kindShare = 2

// Names of the quotas in policy files and in the metadata of errors.
const (
	requestsLimit = "remembered_requests"
	bytesLimit    = "remembered_bytes"
)

// usage is the amount counted against a quota.
type usage struct {
	requests int
	bytes    int64
}

func (u *usage) add(requests int, bytes int64) {
	u.requests += requests
	u.bytes += bytes
}

// over returns the name and size of the quota, divided by share, that is used up; "" if there is none.
func (u usage) over(q Quota, share int) (name string, limit int64) {
	switch {
	case q.Requests > 0 && u.requests >= max(q.Requests/share, 1):
		return requestsLimit, int64(q.Requests)
	case q.Bytes > 0 && u.bytes+Overhead > max(q.Bytes/int64(share), Overhead):
		return bytesLimit, q.Bytes
	}
	return "", 0
}

// exceeds reports whether the usage exceeds a quota divided by share.
func (u usage) exceeds(q Quota, share int) bool {
	return q.Requests > 0 && u.requests > max(q.Requests/share, 1) ||
		q.Bytes > 0 && u.bytes > max(q.Bytes/int64(share), Overhead)
}

// kind groups operations that share a part of a tenant's quota.
type kind uint8

const (
	kindCLI      kind = iota // methods of the CLI
	kindSessions             // opening sessions
	kindMessages             // prompts and their outcomes
	kindAnswers              // answers to callbacks
	kinds
)

// callOf returns a request's operation without the session id.
func callOf(k backend.Key) string {
	name, _, _ := strings.Cut(k.Operation, "\x00")
	return name
}

func kindOf(k backend.Key) kind {
	switch callOf(k) {
	case backend.OpCreate, backend.OpResume, backend.OpAttach:
		return kindSessions
	case backend.OpSend, backend.OpSendAndWait, backend.OpTurnEnd, backend.OpRun:
		return kindMessages
	case backend.OpResolve:
		return kindAnswers
	}
	return kindCLI
}

// admit returns an error if a new request cannot be stored. Entries are never removed to make room, because each one
// prevents a write from being carried out twice. If all tenants together use the total, only those that use more than
// an equal share are refused. The caller holds mu.
func (r *Runner) admit(k backend.Key) error {
	if callOf(k) == backend.OpTurnEnd {
		return nil // the message was admitted; its outcome belongs to it
	}
	own, all := r.limits(k.Tenant)
	t := r.tenants[k.Tenant]
	if t == nil {
		t = &tenant{}
	}
	if name, limit := t.used.over(own, 1); name != "" {
		return t.exhausted("the tenant's", name, limit)
	}
	if name, limit := t.kinds[kindOf(k)].over(own, kindShare); name != "" {
		return t.exhausted("half of the tenant's", name, limit)
	}
	if name, limit := r.used.over(all, 1); name != "" {
		tenants := len(r.tenants)
		if r.tenants[k.Tenant] == nil {
			tenants++
		}
		if share, _ := t.used.over(all, tenants); share != "" {
			return t.exhausted("the server's", name, limit)
		}
	}
	return nil
}

// exhausted returns the error for a quota that is used up until the tenant's oldest request expires.
func (t *tenant) exhausted(whose, name string, limit int64) error {
	retry := time.Second
	if front := t.order.Front(); front != nil {
		retry = max(retry, time.Until(front.Value.(*entry).expires))
	}
	return fault.New(fault.LimitExceeded, "%s limit %s of %d is reached: no more request ids can be remembered; "+
		"send the request later, or without an id", whose, name, limit).
		With("limit", name).WithField("request_id").WithRetry(retry)
}
